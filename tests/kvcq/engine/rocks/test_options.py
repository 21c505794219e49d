"""What RocksDB wrote down as its options is what the profiles say."""

from __future__ import annotations

import configparser
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kvcq.engine.protocol import KvBatch
from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import DERIVED
from kvcq.engine.rocks.sst import write_sst

if TYPE_CHECKING:
    from pathlib import Path

Sections = dict[str, dict[str, str]]


def written_options(path: Path) -> Sections:
    """The newest options file, by section; family names stand in the section's title."""
    newest = max(path.glob("OPTIONS-*"), key=lambda file: int(file.name.split("-")[1]))
    parser = configparser.RawConfigParser(delimiters=("=",), strict=False)
    parser.read_string(newest.read_text())
    return {name: dict(parser[name]) for name in parser.sections() if name != "Version"}


def family(options: Sections, name: str) -> dict[str, str]:
    return options[f'CFOptions "{name}"'] | options[f'TableOptions/BlockBasedTable "{name}"']


@pytest.fixture
def derived(tmp_path: Path) -> Sections:
    RocksEngine.open(tmp_path / "kvcq", DERIVED).close()
    return written_options(tmp_path / "kvcq")


def test_the_derived_database_flushes_all_families_as_one(derived: Sections) -> None:
    database = derived["DBOptions"]
    assert database["atomic_flush"] == "true"
    assert database["paranoid_checks"] == "true"
    assert int(database["max_open_files"]) == 256
    assert int(database["max_file_opening_threads"]) == 2
    assert int(database["db_write_buffer_size"]) == 80 << 20


@pytest.mark.parametrize(
    ("name", "block", "bottommost"),
    [
        ("default", 16 << 10, "kZSTD"),
        ("offset", 4 << 10, "kLZ4Compression"),
        ("index", 16 << 10, "kZSTD"),
    ],
)
def test_each_family_has_its_options(
    derived: Sections, name: str, block: int, bottommost: str
) -> None:
    options = family(derived, name)
    assert options["filter_policy"] == "bloomfilter"  # bits: see the next test
    assert int(options["block_size"]) == block
    assert options["compression"] == "kLZ4Compression"
    assert options["bottommost_compression"] == bottommost
    assert options["compaction_style"] == "kCompactionStyleLevel"
    assert options["cache_index_and_filter_blocks"] == "true"
    assert options["partition_filters"] == "true"
    assert options["compaction_filter_factory"] == "nullptr"
    assert int(options["write_buffer_size"]) == 32 << 20


def test_no_look_up_reads_the_filter_of_a_whole_file_again(tmp_path: Path) -> None:
    # The cache is divided: what is larger than a shard of it is not kept.
    profile = replace(DERIVED, cache_bytes=8 << 20, statistics=True)
    engine = RocksEngine.open(tmp_path / "kvcq", profile)
    bounds = next(family for family in profile.families if family.name == "offset")
    keys = [b"%07d" % number for number in range(300_000)]
    file = write_sst(tmp_path / "sorted", ((key, bytes(16)) for key in keys), bounds)
    assert file is not None
    engine.ingest("offset", [file.path], move=True)
    asked = keys[::30_000]
    engine.multi_get("offset", asked)
    before = engine.statistics()["block_cache_misses"]
    for key in asked * 20:
        assert engine.get("offset", key) is not None
    assert engine.statistics()["block_cache_misses"] == before
    engine.close()


@pytest.mark.parametrize("armed", [False, True])
def test_files_carry_bloom_filters_of_the_bits_said(tmp_path: Path, armed: bool) -> None:
    engine = RocksEngine.open(tmp_path / "kvcq", DERIVED)
    if armed:
        engine.arm(1000)
    rows = [(b"%06d" % number, b"\xff" * 32) for number in range(20_000)]
    engine.write(KvBatch(puts=dict.fromkeys(DERIVED.names, rows)))
    engine.flush()
    opened = engine._gate.enter()
    bits = {}
    for name, table in opened.tables.items():
        text = table.property_value("rocksdb.aggregated-table-properties") or ""
        properties = dict(re.findall(r"([^;=]+)=([^;]+)", text))
        bits[name.strip()] = 8 * int(properties[" filter block size"]) / len(rows)
    engine._gate.leave()
    del opened, table
    engine.close()
    assert bits == {
        "default": pytest.approx(16, rel=0.1),
        "offset": pytest.approx(16, rel=0.1),
        "index": pytest.approx(10, rel=0.1),
        "state": pytest.approx(16, rel=0.1),
    }


def test_the_filter_is_all_that_arming_changes(tmp_path: Path) -> None:
    """The options take a way through a file; nothing is lost on it."""
    engine = RocksEngine.open(tmp_path / "kvcq", DERIVED)
    plain = written_options(tmp_path / "kvcq")
    engine.arm(1234)
    armed = written_options(tmp_path / "kvcq")
    engine.arm(None)
    again = written_options(tmp_path / "kvcq")
    engine.close()
    for section in ('CFOptions "default"', 'CFOptions "index"'):
        filters = armed[section].pop("compaction_filter_factory")
        assert "TtlCompactionFilterFactory" in filters
        assert "ttl=1234" in filters
        # With a filter RocksDB compacts files that lay still for this long (30 days by default).
        assert armed[section].pop("periodic_compaction_seconds") == "2592000"
        for unarmed in (plain, again):
            assert unarmed[section].pop("compaction_filter_factory") == "nullptr"
            assert unarmed[section].pop("periodic_compaction_seconds") == "0"
    assert armed == plain == again


def test_the_cache_is_shared_after_arming(tmp_path: Path) -> None:
    engine = RocksEngine.open(tmp_path / "kvcq", DERIVED)
    engine.arm(1000)
    engine.write(KvBatch(puts={"default": [(b"%04d" % n, bytes(32)) for n in range(1000)]}))
    engine.flush()
    before = engine.statistics()["block_cache_bytes"]
    engine.scan("default", b"0", b"9")
    assert engine.statistics()["block_cache_bytes"] > before
    engine.close()
