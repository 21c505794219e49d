"""A compaction by hand goes piece by piece."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

import kvcq.engine.rocks.compaction
from kvcq.engine.protocol import KvBatch
from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import DERIVED
from tests.support.engines import put

if TYPE_CHECKING:
    from pathlib import Path


def test_compaction_goes_in_pieces(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kvcq.engine.rocks.compaction, "PIECE_BYTES", 100_000)
    small = replace(
        DERIVED,
        families=tuple(replace(family, file_bytes=64 << 10) for family in DERIVED.families),
    )
    engine = RocksEngine.open(path, small)
    for family in ("default", "index"):
        rows = [(b"%06d" % number, os.urandom(100)) for number in range(10_000)]
        engine.write(KvBatch(puts={family: rows}))
    engine.compact("default")
    engine.compact("index")
    seen: list[float] = []
    engine.compact("default", b"001000", b"009000", seen.append)
    assert 4 <= len(seen) <= 10
    assert seen == sorted(set(seen))
    assert seen[-1] == 1.0
    opened = engine._gate.enter()
    pieces = kvcq.engine.rocks.compaction.pieces(opened.tables["default"], None, None)
    engine._gate.leave()
    assert pieces[0][0] is pieces[-1][1] is None
    for (_, end), (start, _) in pairwise(pieces):
        assert end == start
    del opened
    engine.close()


def test_an_error_of_the_progress_callback_ends_the_compaction(engine: RocksEngine) -> None:
    put(engine, 1)

    def stop(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.compact("default", progress=stop)
    put(engine, 2)
