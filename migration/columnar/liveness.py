"""Which records of the log are live: the rule of store/topics/admission.py, for many records at
once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from store.light_queue import is_light
from store.topics import Admission, starts_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from migration.columnar.strings import Names
    from migration.columnar.unaligned import Bools, Ints
    from store.consume_queue import LastUnit
    from store.state import Tables

_NEVER = (1 << 63) - 1


class _AnyTopic:
    """In place of a table of topics if topics are unknown: all records are live."""

    def get(self, _name: str, /) -> int:
        return 0


@dataclass(frozen=True)
class Liveness:
    """The physical offsets at which topics and light queues begin. `topics` None: unknown, all
    records are live."""

    topics: Mapping[str, int] | None = None
    dead_light: Mapping[str, int] = field(default_factory=dict)

    def of_topics(self, topics: Names, physical: Ints) -> Bools:
        """Which records are live, by topic."""
        if self.topics is None:
            return np.ones(len(physical), dtype=np.bool_)
        starts = self.topics
        return physical >= topics.look_up(lambda name: starts.get(name, _NEVER), np.int64)

    def of_light(self, names: Names, physical: Ints) -> Bools:
        """Which units of light queues are live."""
        if not self.dead_light:
            return np.ones(len(physical), dtype=np.bool_)
        return physical >= names.look_up(lambda name: self.dead_light.get(name, 0), np.int64)

    def keeps(self, end: LastUnit) -> bool:
        """Whether the database keeps that end of a queue."""
        name, _, _, physical_offset = end
        starts = _AnyTopic() if self.topics is None else self.topics
        return Admission(starts, self.dead_light).is_live(name, physical_offset)


#: For a log whose topics are unknown.
ALL_LIVE = Liveness()


def liveness_of(tables: Tables, ended: Mapping[str, int]) -> Liveness:
    """Liveness from the state and the log. `ended`: deleted names, and the physical offset of the
    last record in the log that deleted each."""
    dead = tables.dead_below()
    for name, at in ended.items():
        if is_light(name):
            dead[name] = max(at, dead.get(name, 0))
    return Liveness(starts_of(tables), dead)
