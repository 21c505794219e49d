"""The store as it is meant: one log, the state that it adds up to, and states that were kept.

A record is a tuple: where it begins in the log and ends, what it says, and of what:

    (at, end, "made", ((topic, queues), ...))        (at, end, "keeps", topic, messages)
    (at, end, "ended", name)                         (at, end, "put", (message, ...))
    (at, end, "committed", group, name, queue, offset)    (at, end, "group ended", group)

A message is (topic, queue, body, light queues, where its own record begins). Nothing else is known
of a store: `State.of` of its records is what readers see. A database or a snapshot is the records
that it was made of; it may be used where the log has these records, and nothing where it has not.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

Record = tuple[Any, ...]
Message = tuple[str, int, bytes, tuple[str, ...], int]


class Topic(NamedTuple):
    """A topic that exists."""

    queues: int
    begins: int  # where the record that made it begins
    keeps: int = 0  # messages of each queue; 0: all


@dataclass
class State:
    """What records add up to."""

    topics: dict[str, Topic] = field(default_factory=dict)
    #: Of topics' queues and light ones: (where its record begins, body), from the queue's first on.
    queues: dict[tuple[str, int], list[tuple[int, bytes]]] = field(default_factory=dict)
    groups: dict[str, dict[tuple[str, int], int]] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Sequence[Record]) -> State:
        return cls().then(records)

    def then(self, records: Sequence[Record]) -> State:
        """This state, and what the records behind it say."""
        state = deepcopy(self)
        for at, _end, what, *rest in records:
            state._take(at, what, rest)
        return state

    def _take(self, at: int, what: str, rest: list[Any]) -> None:
        match what, rest:
            case "made", [topics]:
                self.topics.update({name: Topic(count, at) for name, count in topics})
            case "keeps", [topic, messages]:
                self.topics[topic] = self.topics[topic]._replace(keeps=messages)
            case "ended", [name]:
                self.topics.pop(name, None)
                self.queues = {key: each for key, each in self.queues.items() if key[0] != name}
                for offsets in self.groups.values():
                    for key in [key for key in offsets if key[0] == name]:
                        del offsets[key]
            case "put", [messages]:
                for topic, queue, body, light, place in messages:
                    for key in ((topic, queue), *((name, 0) for name in light)):
                        self.queues.setdefault(key, []).append((place, body))
            case "committed", [group, name, queue, offset]:
                self.groups.setdefault(group, {})[name, queue] = offset
            case "group ended", [group]:
                del self.groups[group]
            case _:
                raise AssertionError(what)

    def bounds(self, name: str, queue: int, log_start: int) -> tuple[int, int]:
        """Of what readers see of the queue, where the log begins there."""
        messages = self.queues.get((name, queue), [])
        low = sum(place < log_start for place, _ in messages)
        keeps = self.topics[name].keeps if name in self.topics else 0
        return max(low, len(messages) - keeps if keeps else 0), len(messages)


@dataclass
class Model:
    """A log, and states of it that were kept."""

    log: list[Record] = field(default_factory=list)
    start: int = 0  # physical: records below are gone
    flushed: int = 0  # physical: no loss of power takes what is below
    database: tuple[Record, ...] = ()
    snapshots: list[tuple[Record, ...]] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.log[-1][1] if self.log else 0

    def append(self, record: Record) -> None:
        assert record[0] >= self.end, "records follow each other"
        self.log.append(record)

    def cut(self, end: int) -> None:
        """A loss of power, or a restore to a point: what ends behind it is gone."""
        assert end >= self.flushed, "what was flushed is lost"
        self.log = [record for record in self.log if record[1] <= end]

    def drop(self, start: int) -> None:
        """Retention: only behind a snapshot."""
        assert any(state and state[-1][1] >= start for state in self.snapshots), "no snapshot"
        self.start = start

    def is_of_this_log(self, state: tuple[Record, ...]) -> bool:
        """By its last record alone: the log has that record there, so it has those before it."""
        return not state or (len(state) <= len(self.log) and self.log[len(state) - 1] == state[-1])

    def opened(self) -> State | None:
        """What the next opening makes of the newest state that may be used, and of the log behind
        it; None: of a log that does not begin at 0 there is none."""
        self.snapshots = [each for each in self.snapshots if self.is_of_this_log(each)]
        usable = [each for each in (self.database, *self.snapshots) if self.is_of_this_log(each)]
        if self.start:
            usable = [each for each in usable if each and each[-1][1] >= self.start]
        if not usable:
            return None if self.start else State.of(self.log)
        newest = max(usable, key=len)
        return State.of(newest).then(self.log[len(newest) :])
