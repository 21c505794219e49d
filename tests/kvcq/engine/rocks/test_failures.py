"""Damage is an error, a stall is not, and neither is ever taken for a row or an end."""

from __future__ import annotations

import contextlib
import hashlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kvcq.engine.protocol import KvBatch
from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import DERIVED
from kvcq.errors import EngineBusyError, EngineFailedError, KvcqError
from tests.support.engines import ALL, put

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def damaged(path: Path) -> Iterator[RocksEngine]:
    """Rows 0..999 in one file, with a bit turned in one of its blocks."""
    engine = RocksEngine.open(path, DERIVED)
    rows = [(b"%04d" % number, hashlib.sha256(b"%d" % number).digest()) for number in range(5000)]
    engine.write(KvBatch(puts={"default": rows}))
    engine.close()
    (file,) = path.glob("*.sst")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    engine = RocksEngine.open(path, DERIVED)
    yield engine
    with pytest.raises(KvcqError):
        # A compaction that met the damage leaves the database failed; if none did, end here.
        engine.compact("default")
    with contextlib.suppress(EngineFailedError):
        engine.close()


def test_a_turned_bit_is_an_error_never_a_row(damaged: RocksEngine) -> None:
    bad = []
    for number in range(5000):
        try:
            value = damaged.get("default", b"%04d" % number)
        except EngineFailedError:
            bad.append(b"%04d" % number)
        else:
            assert value == hashlib.sha256(b"%d" % number).digest()
    with pytest.raises(EngineFailedError, match="checksum"):
        damaged.get("default", bad[0])
    with pytest.raises(EngineFailedError, match="checksum"):
        damaged.multi_get("default", [b"0000", bad[0]])
    for reverse in (False, True):
        with pytest.raises(EngineFailedError, match="checksum"):
            damaged.scan("default", *ALL, reverse=reverse)
        with pytest.raises(EngineFailedError, match="checksum"):
            damaged.scan("default", bad[0], bad[0] + b"\0", limit=1, reverse=reverse)
    before = int(bad[0])
    assert len(damaged.scan("default", b"0", bad[0], limit=before)) == before
    assert len(damaged.scan("default", *ALL, limit=100)) == 100
    assert len(damaged.scan("default", *ALL, limit=100, reverse=True)) == 100


def test_compaction_of_damage_fails_and_ends_writing(damaged: RocksEngine) -> None:
    put(damaged, 0)
    with pytest.raises(EngineFailedError, match="compaction"):
        damaged.compact("default")
    with pytest.raises(EngineFailedError, match="checksum"):
        put(damaged, 1)
    with pytest.raises(EngineFailedError):
        damaged.flush()


def test_a_stall_is_busy_and_writes_nothing(path: Path) -> None:
    tiny = replace(
        DERIVED,
        families=tuple(
            replace(family, memtable_bytes=64 << 10, memtable_count=2)
            for family in DERIVED.families
        ),
        rate_bytes_per_s=300_000,  # so that a flush takes long enough to be overtaken
    )
    engine = RocksEngine.open(path, tiny)
    written = 0
    batch = KvBatch()

    def write_on() -> None:
        nonlocal written, batch
        for number in range(10_000):
            batch = KvBatch()
            for row in range(100):
                batch.put("default", b"%06d" % (number * 100 + row), os.urandom(300))
            batch.put("offset", b"point", b"%d" % number)
            engine.write(batch)
            written += 1

    with pytest.raises(EngineBusyError):
        write_on()
    numbers = engine.statistics()
    assert numbers["write_stopped"] == 1.0
    # Told by family and cause.
    assert numbers["default.stalls_memtables"] > 0
    assert numbers["default.stalls_l0_files"] == numbers["index.stalls_memtables"] == 0
    assert len(engine.scan("default", *ALL)) == written * 100
    assert engine.get("offset", b"point") == b"%d" % (written - 1)
    # The same batch is taken when there is room.
    for _ in range(100):
        engine.flush()
        try:
            engine.write(batch)
            break
        except EngineBusyError:
            continue
    assert len(engine.scan("default", *ALL)) == (written + 1) * 100
    engine.close()
