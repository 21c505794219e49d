"""Hands held messages over to a broker, except messages that were already delivered.

| here                     | for the broker                                                      |
|--------------------------|---------------------------------------------------------------------|
| delayed messages         | the same at the end of rmq_sys_wheel_timer, a `config/timercheck`   |
|                          | that makes it process these and no others, and no wheel             |
| messages taken over from | a `config/delayOffset.json` that says that all were delivered       |
| SCHEDULE_TOPIC_XXXX      |                                                                     |
| open transactions        | halves in RMQ_SYS_TRANS_HALF_TOPIC, and the offset of its own group |
|                          | before them; those given up in TRANS_CHECK_MAX_TIME_TOPIC           |
| in flight of a shared    | the offset of the first message that is not done                    |
| group                    |                                                                     |

Repeatable. After a kill the store can still be opened; it takes over again halves that were handed
over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from migration.broker_config import TAKEN_GROUP, write_delivered_offsets
from migration.waiting import GIVEN_UP_TOPIC, HALF_TOPIC, OpenLog, write_timer_files
from store.errors import UnknownTopicError
from store.format import SCHEDULE_TOPIC
from store.held import LIGHT_QUEUES, Done
from store.state import DEAD_LETTERS, TIMER_TOPIC

if TYPE_CHECKING:
    from pathlib import Path

    from store.base import Clock
    from store.message_store import MessageStore

#: Above every physical offset.
_EVERYTHING = 1 << 62


def waits_here(store: MessageStore) -> bool:
    """Whether `give_back` would append to the log."""
    return bool(store.timers.count() or any(store.halves.counts()))


def give_back(store: MessageStore, root: Path, clock: Clock) -> list[str]:
    """Hand held messages over to the broker. Returns lines about what was done, and about messages
    that a broker cannot have. Then the store delivers no more held messages. Raises what an append
    raises, OSError."""
    store.timers.firing.stop()
    lines = _halves(store)
    lines += _timers(store, root, clock)
    if store.has_group(TAKEN_GROUP):
        write_delivered_offsets(
            root,
            {
                queue_id + 1: offset
                for topic, queue_id, offset in store.tables.every_committed(TAKEN_GROUP)
                if topic == SCHEDULE_TOPIC
            },
        )
    return [*lines, *_in_flight(store), *_letters(store)]


def _halves(store: MessageStore) -> list[str]:
    done = store.handing_back.halves(HALF_TOPIC, GIVEN_UP_TOPIC)
    lines = []
    if done.halves:
        lines.append(
            f"{done.halves} open transactions are halves of the broker's in {HALF_TOPIC}: it asks "
            "their producers. Ids of transactions from this store are no longer valid"
        )
    if done.given_up:
        lines.append(
            f"{done.given_up} transactions that were given up are in {GIVEN_UP_TOPIC}, where the "
            "broker delivers nothing: decide them before with `kvcq tran commit` or `rollback`"
        )
    if done.without_light:
        lines.append(
            f"{done.without_light} of these are for light queues as well, which the broker leaves "
            "out when they are committed: decide them before with `kvcq tran commit`"
        )
    if done.lost:
        lines.append(f"{done.lost} open transactions cannot be read: they are not given back")
    return lines


def _timers(store: MessageStore, root: Path, clock: Clock) -> list[str]:
    try:
        ((low, high),) = store.bounds([(TIMER_TOPIC, 0)])
    except UnknownTopicError:
        return []
    before = store.timers.count()
    done = Done(low)
    while done.at is not None:
        done = store.timers.keeping.move_some(TIMER_TOPIC, high, done)
    store.flush()
    (root / "config").mkdir(exist_ok=True)
    write_timer_files(root, high, clock.now_ms())
    if not before:
        return []
    lines = [
        f"{done.moved} delayed messages are the broker's, which needs timerWheelEnable=true (the "
        "default), and delivers them to the second. Recall handles from this store are no longer "
        "valid"
    ]
    light = sum(
        LIGHT_QUEUES in was.properties
        for was in OpenLog(store, _EVERYTHING).read(TIMER_TOPIC, 0, high)
    )
    if light:
        lines.append(
            f"{light} of these are for light queues as well, which the broker leaves out: wait for "
            "them here (`kvcq timers list`), or recall them, before the release"
        )
    if done.moved < before:
        lines.append(f"{before - done.moved} delayed messages cannot be read: not given back")
    return lines


def _in_flight(store: MessageStore) -> list[str]:
    groups: set[str] = set()
    undone = again = 0
    for group in store.tables.every_group():
        for _, _, window in store.tables.every_window(group):
            if window.undone:
                groups.add(group)
            undone += window.undone
            again += window.next_offset - window.done_below - window.undone
    if not undone:
        return []
    lines = [
        f"{undone} messages that {len(groups)} shared groups have in flight, or would receive "
        "again, are delivered by the broker from the first of them on"
    ]
    if again:
        lines.append(
            f"it delivers {again} acknowledged messages behind them again, because it only has "
            "offsets. `kvcq group describe` shows what a group has in flight: let its workers "
            "finish before the release"
        )
    return lines


def _letters(store: MessageStore) -> list[str]:
    ended = 0
    for topic in store.tables.every_topic(DEAD_LETTERS):
        ((low, high),) = store.bounds([(topic.name, 0)])
        ended += store.tables.count_ended(topic.name, low, high)
    if not ended:
        return []
    return [
        f"{ended} messages in topics {DEAD_LETTERS}* were put again or deleted here: the broker "
        "shows them as dead letters until their segments go"
    ]
