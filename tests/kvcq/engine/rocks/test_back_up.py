"""RocksEngine.back_up: a copy that is opened like any database, and proves itself."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from kvcq.engine.protocol import KvBatch
from kvcq.engine.rocks import DERIVED, RocksEngine
from kvcq.errors import EngineClosedError
from tests.support.engines import META, points, put

if TYPE_CHECKING:
    from pathlib import Path

    from kvcq.engine.rocks.options import Profile


@pytest.mark.parametrize("profile", [DERIVED, META], ids=["derived", "metadata"])
def test_a_copy_has_what_was_written_before(profile: Profile, tmp_path: Path) -> None:
    engine = RocksEngine.open(tmp_path / "kv", profile)
    family = profile.names[0]
    for number in range(100):
        engine.write(KvBatch(puts={family: [(b"%06d" % number, b"row")]}))
    copy = engine.back_up()
    engine.write(KvBatch(puts={family: [(b"later", b"row")]}))
    found = RocksEngine.open_read_only(copy, profile)
    assert len(found.scan(family, b"0", b"9")) == 100
    assert found.get(family, b"later") is None
    found.close()
    copy.rename(tmp_path / "restored")
    again = RocksEngine.open(tmp_path / "restored", profile)
    assert len(again.scan(family, b"0", b"9")) == 100
    again.close()
    engine.close()


def test_all_families_are_at_one_point_while_others_write(tmp_path: Path) -> None:
    engine = RocksEngine.open(tmp_path / "kv", DERIVED)
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            put(engine, number)
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    copies = [engine.back_up() for _ in range(5)]
    stop.set()
    writer.join()
    for copy in copies:
        found = RocksEngine.open_read_only(copy, DERIVED)
        assert len({*points(found)}) == 1
        found.close()
    engine.close()


def test_closing_removes_what_nobody_removed(tmp_path: Path) -> None:
    engine = RocksEngine.open(tmp_path / "kv", DERIVED)
    put(engine, 1)
    copy = engine.back_up()
    engine.close()
    assert not copy.exists()
    assert not (tmp_path / "kv.tmp").exists()
    with pytest.raises(EngineClosedError):
        engine.back_up()


def test_what_a_crash_left_of_a_copy_is_removed(tmp_path: Path) -> None:
    (tmp_path / "kv.tmp" / "copy-1").mkdir(parents=True)
    engine = RocksEngine.open(tmp_path / "kv", DERIVED)
    assert not (tmp_path / "kv.tmp" / "copy-1").exists()
    engine.close()
