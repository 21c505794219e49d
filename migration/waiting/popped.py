"""Finds messages that members of popping groups received and did not acknowledge.

A broker advances a group's offset when it delivers a message, so messages in flight are only in its
revive log: the queues of `rmq_sys_REVIVE_LOG_<cluster>`.

| tag  | body, JSON                                                                            |
|------|---------------------------------------------------------------------------------------|
| ck   | delivered: `c` group, `t` topic, `q` queue id, `so` first offset, `pt` ms, `it` ms     |
|      | invisible, `n` how many, `d` their offsets from the first, `bm` bits of those done     |
| ack  | `c`, `t`, `q`, `so`, `pt` of the `ck`, `ao` acknowledged offset                       |
| bAck | the same with `aol`, offsets                                                           |

Records below the committed offset of the broker's own group are finished: acknowledged, or put into
a retry topic, which is %RETRY%group_topic or %RETRY%group+topic; %RETRY%group for RocketMQ 4.

Source: RocketMQ 5.5, PopCheckPoint, AckMsg, BatchAckMsg, PopReviveService, KeyBuilder.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from migration.broker_config import lite_group_of
from migration.waiting.names import RETRY_TOPICS, REVIVE_TOPICS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from migration.waiting.broker_log import BrokerLog, Watched

logger = logging.getLogger(__name__)

#: Most messages of one delivery by a broker.
_MOST = 64


class InFlight(NamedTuple):
    """A message in flight for a group."""

    group: str
    topic: str  # or a retry topic of the group
    queue_id: int
    offset: int


_Handed = tuple[str, str, int, int, int]


def find_in_flight(log: BrokerLog, done: Mapping[tuple[str, int], int]) -> list[InFlight]:
    """Messages that were delivered and not acknowledged, each once. `done`: the broker's positions
    in its queues. Logs and skips invalid records.

    Memory: an entry for each delivery that the broker has not finished.
    """
    handed: dict[_Handed, set[int]] = {}
    for topic in log.topics(REVIVE_TOPICS):
        for queue_id in log.ids(topic):
            for was in log.read(topic, queue_id, done.get((topic, queue_id), 0)):
                try:
                    _take(was.tag, json.loads(was.body), handed)
                except (KeyError, TypeError, ValueError) as error:
                    where = (topic, queue_id, was.queue_offset, error)
                    logger.error("%s, queue %d, place %d makes no sense: %r", *where)
    found = {
        InFlight(group, topic, queue_id, offset)
        for (group, topic, queue_id, *_), offsets in handed.items()
        for offset in offsets
    }
    return sorted(found)


def _take(tag: str, said: Mapping[str, object], handed: dict[_Handed, set[int]]) -> None:
    first = _number(said, "so")
    name = (str(said["c"]), str(said["t"]), _number(said, "q"), first, _number(said, "pt"))
    if tag == "ck":
        deltas = said.get("d") or list(range(min(_number(said, "n"), _MOST)))
        bits = _number(said, "bm")
        if not isinstance(deltas, list):
            raise ValueError("d is no list")
        handed[name] = {first + int(delta) for at, delta in enumerate(deltas) if not bits >> at & 1}
    elif tag in ("ack", "bAck"):
        done = said.get("aol") if tag == "bAck" else [said["ao"]]
        if not isinstance(done, list):
            raise ValueError("aol is no list")
        handed.get(name, set()).difference_update(map(int, done))


def _number(said: Mapping[str, object], name: str) -> int:
    value = said[name]
    if not isinstance(value, int):
        raise ValueError(f"{name} is no number")
    return value


def seen_groups(log: Watched, in_flight: Iterable[InFlight]) -> set[str]:
    """Groups that received messages, according to the newest part of the revive log."""
    found = {each.group for each in in_flight}
    for was in log.over():
        try:
            said = json.loads(was.body)
            found.add(str(said["c"]))
        except (KeyError, TypeError, ValueError):
            continue
    return found


def popping_groups(
    rows: Mapping[str, Mapping[str, Any]], seen: Collection[str], topics: Collection[str]
) -> frozenset[str]:
    """The groups in `rows` whose members pop: the revive log has their receives (`seen`), or they
    have a retry topic of the kind that only popping groups have, or they are in order, or receive
    from lite topics.

    No setting shows it, so groups that have not popped for long are missed.
    """
    found = {
        group
        for group, row in rows.items()
        if group in seen or row.get("consumeMessageOrderly") or lite_group_of(row)
    }
    names = set(topics)
    for name in names:
        if not name.startswith(RETRY_TOPICS):
            continue
        rest = name[len(RETRY_TOPICS) :]
        for at, letter in enumerate(rest):
            if letter in "_+" and rest[:at] in rows and rest[at + 1 :] in names:
                found.add(rest[:at])
    return frozenset(found)


def retry_topics_of(group: str, topics: Collection[str]) -> list[tuple[str, str]]:
    """The retry topics of a popping group, each with its original topic. Names of groups and topics
    may contain `_`, so the rest of the name must be an existing topic."""
    found = []
    prefix = RETRY_TOPICS + group
    for name in topics:
        if name.startswith(prefix) and name[len(prefix) : len(prefix) + 1] in ("_", "+"):
            topic = name[len(prefix) + 1 :]
            if topic in topics:
                found.append((name, topic))
    return sorted(found)
