"""Which records of the log belong to something, and to which side of a migration.

The rules are those of store/topics.py, for many records at once. A record is dead when its topic is
gone or was made again behind it; a unit of a light queue is dead below the queue's deletion. During
a migration a name is routed to file queues, to RocksDB or to both, by migration/routes.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from migration.routes import SideName
from store.units import LMQ_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt
    import pyarrow as pa

    from migration.routes import Routes
    from migration.spark.gather import Ints
    from store.consume_queue import LastUnit
    from store.metadata import Metadata

_NEVER = (1 << 63) - 1
_PAGE = 10_000


@dataclass(frozen=True)
class Liveness:
    """Physical offsets from which names live. `topics` None: nothing is known, all of them live."""

    topics: Mapping[str, int] | None = None
    dead_light: Mapping[str, int] = field(default_factory=dict)
    deletions: int = 0  # number of the last deletion, to be carried over
    routes: Routes | None = None  # None: every name stands on every side

    def of_topics(self, topics: pa.StringArray, physical: Ints) -> npt.NDArray[np.bool_]:
        """Which records live, by topic."""
        if self.topics is None:
            return np.ones(len(physical), dtype=np.bool_)
        known = self.topics
        return _reached(topics, physical, lambda name: known.get(name, _NEVER))

    def of_light(self, names: pa.StringArray, physical: Ints) -> npt.NDArray[np.bool_]:
        """Which units of light queues live."""
        if not self.dead_light:
            return np.ones(len(physical), dtype=np.bool_)
        return _reached(names, physical, lambda name: self.dead_light.get(name, 0))

    def keeps(self, end: LastUnit) -> bool:
        """Whether the database has that end of a queue."""
        name, _, _, physical_offset = end
        if self.routes is not None and not self.routes.takes(SideName.ROCKSDB, name):
            return False
        if name.startswith(LMQ_PREFIX):
            return physical_offset >= self.dead_light.get(name, 0)
        return self.topics is None or physical_offset >= self.topics.get(name, _NEVER)

    def takes(self, side: SideName, names: pa.StringArray) -> npt.NDArray[np.bool_]:
        """Which of the topics and light queues stand on the side."""
        if self.routes is None or self.routes.takes_all(side):
            return np.ones(len(names), dtype=np.bool_)
        routes = self.routes
        return _looked_up(names, lambda name: routes.takes(side, name), np.bool_)


#: For a log of a store whose topics are not known.
ALL_LIVE = Liveness()


def liveness_of(
    metadata: Metadata, applied_deletions: int = 0, routes: Routes | None = None
) -> Liveness:
    """What the metadata says. `applied_deletions`: the number in the database that is replaced."""
    topics: dict[str, int] = {}
    after: str | None = None
    while page := metadata.list_topics("", after, _PAGE):
        topics.update((topic.name, topic.created_offset) for topic in page)
        after = page[-1].name
    marks = metadata.delete_marks()
    dead = {mark.topic: mark.below_offset for mark in marks if mark.topic.startswith(LMQ_PREFIX)}
    last = max([applied_deletions, *(mark.sequence for mark in marks)])
    return Liveness(topics, dead, last, routes)


def _reached(
    names: pa.StringArray, physical: Ints, start: Callable[[str], int]
) -> npt.NDArray[np.bool_]:
    live: npt.NDArray[np.bool_] = physical >= _looked_up(names, start, np.int64)
    return live


def _looked_up(
    names: pa.StringArray, answer: Callable[[str], object], dtype: npt.DTypeLike
) -> npt.NDArray[Any]:
    """The answer for each name; each different name is asked for once."""
    encoded = names.dictionary_encode()
    answers = np.array([answer(name) for name in encoded.dictionary.to_pylist()], dtype=dtype)
    return answers[np.asarray(encoded.indices, dtype=np.int64)]
