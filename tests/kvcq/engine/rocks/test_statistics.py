"""The numbers an operator sees."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import DERIVED
from tests.support.engines import put

if TYPE_CHECKING:
    from pathlib import Path


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


def test_reads_and_cache_hits_are_counted_where_the_profile_asks_for_it(tmp_path: Path) -> None:
    engine = RocksEngine.open(tmp_path / "db", replace(DERIVED, statistics=True))
    try:
        put(engine, 1)
        engine.flush()
        for _ in range(3):
            engine.get("default", b"%06d" % 1)
        numbers = engine.statistics()
    finally:
        engine.close()
    assert numbers["keys_read"] == 3
    assert numbers["bytes_written"] > 0
    assert numbers["writes_self"] >= 1
    assert numbers["block_cache_hits"] > 0


def test_they_are_not_counted_otherwise(engine: RocksEngine) -> None:
    assert "block_cache_hits" not in engine.statistics()
