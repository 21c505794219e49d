"""The numbers an operator sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq.engine.rocks.options import DERIVED
from tests.support.engines import put

if TYPE_CHECKING:
    from kvcq.engine.rocks import RocksEngine


def test_statistics_cover_families_and_database(engine: RocksEngine) -> None:
    put(engine, 1)
    numbers = engine.statistics()
    assert numbers["index.memtable_bytes"] > 0
    engine.flush()
    numbers = engine.statistics()
    assert numbers["index.sst_bytes"] > 0
    assert numbers["offset.l0_files"] == 1.0
    for name in (
        "default.pending_compaction_bytes",
        "running_flushes",
        "running_compactions",
        "write_stopped",
        "delayed_write_bytes_per_s",
        "background_errors",
    ):
        assert numbers[name] == 0.0
    assert 0 < numbers["block_cache_bytes"] <= DERIVED.cache_bytes
