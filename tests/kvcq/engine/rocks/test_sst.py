"""Sorted files for the engine to take in."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from kvcq.engine.rocks import RocksEngine, write_sst
from kvcq.engine.rocks.options import DERIVED
from kvcq.errors import EngineFailedError
from tests.support.engines import ALL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_a_sorted_file_tells_its_range(tmp_path: Path, engine: RocksEngine) -> None:
    rows = [(b"%06d" % number, struct.pack(">q", number)) for number in range(5000)]
    file = write_sst(tmp_path / "a.sst", iter(rows), DERIVED.families[0])
    assert file is not None
    assert (file.rows, file.first_key, file.last_key) == (5000, b"000000", b"004999")
    engine.ingest("default", [file.path], move=True)
    assert engine.scan("default", *ALL) == rows
    assert engine.statistics()["default.sst_bytes"] > 0


def test_a_file_whose_source_fails_is_not_left(tmp_path: Path) -> None:
    def rows() -> Iterator[tuple[bytes, bytes]]:
        yield b"a", b""
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_sst(tmp_path / "a.sst", rows(), DERIVED.families[0])
    with pytest.raises(EngineFailedError):
        write_sst(tmp_path / "none" / "a.sst", [(b"a", b"")], DERIVED.families[0])
    assert list(tmp_path.iterdir()) == []
