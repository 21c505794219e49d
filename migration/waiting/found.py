"""Finds delayed messages, timers and halves that the broker has not delivered or decided.

The broker's offsets in its own queues show which ones it has delivered. A broker that was killed
had not written its last offsets. Then a later message with the same id in the target topic shows
that the message was delivered. So a message is only delivered twice if the broker would do so, too:
if it has no id (UNIQ_KEY), and was delivered after the offsets were last written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from migration.waiting.names import (
    ENDED_TOPIC,
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    WAITING_PROPERTIES,
)
from store.format import LMQ_NAMES, SCHEDULE_TOPIC, UNIQ_KEY
from store.held import HELD_PROPERTIES, TIMER_OUT, again, number_of, target_of
from store.light_queue import is_light
from store.state import TIMER_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from migration.waiting.broker_log import BrokerLog
    from migration.waiting.timer_files import TimerFiles
    from store.message import Message, StoredMessage

_RECALLS = "TIMER_DEL_UNIQKEY"
_ROLLED = "TIMER_ROLL_TIMES"
_FIRST_HALF = "TRAN_PREPARED_QUEUE_OFFSET"


class Found(NamedTuple):
    """A message of one of the broker's queues."""

    was: StoredMessage
    is_waiting: bool  # otherwise delivered, decided, recalled, or put again at a later place


def find_delayed(log: BrokerLog, queue_id: int, first: int) -> Iterator[Found]:
    """Yield messages of one level from offset `first` on, ascending."""
    for was in log.read(SCHEDULE_TOPIC, queue_id, first):
        yield Found(was, is_waiting=not _came(log, was))


def find_timers(log: BrokerLog, files: TimerFiles | None, first: int) -> Iterator[Found]:
    """Yield timers from offset `first` on, ascending. Memory: an entry for each recall and each
    repeated timer."""
    recalls: dict[str, int] = {}
    rolled: dict[str, int] = {}
    for was in log.read(TIMER_TOPIC, 0, 0):
        if recalled := was.properties.get(_RECALLS):
            recalls[recalled] = was.queue_offset
        elif _ROLLED in was.properties and (key := was.properties.get(UNIQ_KEY)):
            rolled[key] = was.queue_offset
    for was in log.read(TIMER_TOPIC, 0, first):
        key = was.properties.get(UNIQ_KEY, "")
        topic = was.properties.get("REAL_TOPIC", "")
        # Recalls name the topic or not, by a setting of the broker.
        names = (key, f"{topic}+{key}", f"{topic}_{key}") if key else ()
        is_over = (
            _RECALLS in was.properties
            or (files is not None and not files.may_wait(was.queue_offset, was.physical_offset))
            or any(recalls.get(name, -1) > was.queue_offset for name in names)
            or rolled.get(key, -1) > was.queue_offset
        )
        yield Found(was, is_waiting=not is_over and not _came(log, was))


def find_halves(log: BrokerLog, first: int) -> Iterator[Found]:
    """Yield halves from offset `first` on, ascending. Memory: an entry for each decided or repeated
    half."""
    ended: set[int] = set()
    for was in log.read(ENDED_TOPIC, 0, 0):
        numbers = was.body.decode("ascii", "replace").split(",")
        ended.update(int(number) for number in numbers if number.isascii() and number.isdigit())
    latest: dict[str, int] = {}
    for was in log.read(HALF_TOPIC, 0, first):
        if key := was.properties.get(UNIQ_KEY):
            latest[key] = was.queue_offset
    for was in log.read(HALF_TOPIC, 0, first):
        key = was.properties.get(UNIQ_KEY, "")
        is_over = (
            was.queue_offset in ended
            or number_of(was.properties, _FIRST_HALF, -1) in ended
            or latest.get(key, -1) > was.queue_offset
            or (bool(key) and log.is_later(GIVEN_UP_TOPIC, key, was.physical_offset))
        )
        yield Found(was, is_waiting=not is_over and not _came(log, was))


def _came(log: BrokerLog, was: StoredMessage) -> bool:
    """Whether the message was delivered: its topic has a later message with its id."""
    key, topic = was.properties.get(UNIQ_KEY), was.properties.get("REAL_TOPIC")
    return bool(key and topic and log.is_later(topic, key, was.physical_offset))


def due_of(was: StoredMessage, tag_code: int) -> int:
    """When the message is due, ms since 1970. `tag_code`: from the broker's unit."""
    if was.topic == SCHEDULE_TOPIC:
        return tag_code
    return number_of(was.properties, "TIMER_DELIVER_MS", number_of(was.properties, TIMER_OUT, 0))


def message_of(was: StoredMessage) -> Message:
    """The message as readers of its topic get it. Raises InvalidArgumentError if it names no
    topic."""
    target = target_of(was.properties)
    light = was.properties.get(LMQ_NAMES, "")
    message = again(was, target.topic, HELD_PROPERTIES | WAITING_PROPERTIES, {})
    # The property of kvcq is from a message that was handed back.
    given = (*light.split(","), *target.light_queues)
    names = tuple(dict.fromkeys(name for name in given if is_light(name)))
    return message._replace(queue_id=target.queue_id, light_queues=names)
