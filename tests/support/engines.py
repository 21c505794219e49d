"""Rows that tests of the engine on RocksDB write and count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq.engine.protocol import KvBatch
from kvcq.engine.rocks.options import small_profile

if TYPE_CHECKING:
    from kvcq.engine.rocks import RocksEngine

ALL = (b"", b"\xff" * 8)
META = small_profile("default", "marks")
_QUEUES = ("default", "offset", "index")


def put(engine: RocksEngine, number: int) -> None:
    """A row in every family of queues, as one dispatch."""
    batch = KvBatch()
    for family in _QUEUES:
        batch.put(family, b"%06d" % number, b"row")
    batch.put("offset", b"point", b"%d" % number)
    engine.write(batch)


def points(engine: RocksEngine) -> list[int]:
    """Rows in each family; in `offset` the dispatch point is one more."""
    counts = [len(engine.scan(family, b"0", b"9")) for family in _QUEUES]
    point = engine.get("offset", b"point")
    return [*counts, int(point) + 1 if point is not None else 0]
