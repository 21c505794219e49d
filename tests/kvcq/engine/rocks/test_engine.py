"""What only the engine on RocksDB has: files, crashes, reopening."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

import kvcq.engine.rocks.engine
from kvcq.engine.protocol import KvBatch
from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import DERIVED
from kvcq.errors import EngineFailedError, KvcqError
from store.errors import InvalidArgumentError
from tests.support.engines import META, points, put

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def run_to_its_death(path: Path, body: str) -> None:
    """Run `body` in a child that kills itself. `engine` is the derived database at `path`."""
    code = f"""
import os, signal
from pathlib import Path
from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import DERIVED
from tests.support.engines import META, put
path = Path({str(path)!r})
{body}
os.kill(os.getpid(), signal.SIGKILL)
"""
    child = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert child.returncode == -signal.SIGKILL


def block_scratch(path: Path) -> Path:
    """Put a file where the engine wants to make a directory."""
    scratch = path.with_name("kvcq.tmp")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.write_bytes(b"in the way")
    return scratch


def test_close_makes_everything_durable(path: Path) -> None:
    engine = RocksEngine.open(path, DERIVED)
    for number in range(10):
        put(engine, number)
    engine.close()
    engine = RocksEngine.open(path, DERIVED)
    assert points(engine) == [10, 10, 10, 10]
    engine.close()


@pytest.mark.crash
def test_after_a_kill_all_families_stand_at_the_last_flush(path: Path) -> None:
    run_to_its_death(
        path,
        """
engine = RocksEngine.open(path, DERIVED)
for number in range(100):
    put(engine, number)
    if number == 59:
        engine.flush()
""",
    )
    engine = RocksEngine.open(path, DERIVED)
    assert points(engine) == [60, 60, 60, 60]
    engine.close()


@pytest.mark.crash
def test_a_flush_of_one_family_parts_them(path: Path) -> None:
    """Why the engine never does it; and the check above can fail."""
    run_to_its_death(
        path,
        """
engine = RocksEngine.open(path, DERIVED)
for number in range(100):
    put(engine, number)
engine._gate.enter().tables["offset"].flush()
""",
    )
    engine = RocksEngine.open(path, DERIVED)
    assert points(engine) == [0, 100, 0, 100]
    engine.close()


@pytest.mark.crash
def test_after_a_kill_a_full_memtable_has_flushed_all_families(path: Path) -> None:
    run_to_its_death(
        path,
        """
from dataclasses import replace
from kvcq.errors import EngineBusyError
families = tuple(replace(family, memtable_bytes=64 << 10) for family in DERIVED.families)
engine = RocksEngine.open(path, replace(DERIVED, families=families))
number = 0
while engine.statistics()["index.l0_files"] < 2:
    try:
        put(engine, number)
        number += 1
    except EngineBusyError:
        pass
""",
    )
    engine = RocksEngine.open(path, DERIVED)
    counts = points(engine)
    assert counts == [counts[0]] * 4
    assert counts[0] > 100
    engine.close()


def test_a_caught_error_does_not_keep_the_directory_locked(path: Path) -> None:
    engine = RocksEngine.open(path, DERIVED)
    kept: list[Exception] = []
    calls: list[Callable[[], object]] = [
        lambda: engine.write(KvBatch(puts={"default": [(b"a", "no bytes")]})),  # type: ignore[list-item]
        lambda: engine.write(KvBatch(puts={"no such": [(b"a", b"")]})),
        lambda: engine.scan("default", b"a", 5),  # type: ignore[arg-type]
        lambda: engine.compact("no such"),
        lambda: engine.multi_get("no such", [b"a"]),
    ]
    for call in calls:
        with pytest.raises((KvcqError, TypeError)) as caught:
            call()
        kept.append(caught.value)
    engine.close()
    RocksEngine.open(path, DERIVED).close()
    assert len(kept) == len(calls)


def test_a_last_flush_that_fails_is_told_and_lets_go(path: Path) -> None:
    engine = RocksEngine.open(path, DERIVED)
    put(engine, 1)
    blocked = block_scratch(path)
    with pytest.raises(EngineFailedError, match="last flush") as caught:
        engine.close()
    engine.close()
    blocked.unlink()
    RocksEngine.open(path, DERIVED).close()
    assert caught.value.__cause__ is not None


def test_arming_is_invisible_to_other_threads(engine: RocksEngine) -> None:
    stop = threading.Event()
    errors: list[BaseException] = []
    counts = [0, 0]

    def write() -> None:
        try:
            while not stop.is_set():
                put(engine, counts[0])
                counts[0] += 1
        except BaseException as error:  # noqa: BLE001  (looked at below)
            errors.append(error)

    def read() -> None:
        try:
            while not stop.is_set():
                written = counts[0]
                low = max(0, written - 50)
                rows = engine.scan("default", b"%06d" % low, b"%06d" % written)
                assert len(rows) == written - low
                assert engine.multi_get("index", [b"%06d" % low]) != [None] or written == 0
                counts[1] += 1
        except BaseException as error:  # noqa: BLE001  (looked at below)
            errors.append(error)

    threads = [threading.Thread(target=write), threading.Thread(target=read)]
    for thread in threads:
        thread.start()
    for round_ in range(5):
        engine.arm(None if round_ % 3 == 2 else 1000 + round_)
        engine.flush()
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert points(engine) == [counts[0]] * 4
    assert min(counts) > 0


def test_arming_waits_for_a_piece_of_compaction_only(
    engine: RocksEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the midst of a compaction, between two pieces, the database is exchanged."""
    put(engine, 1)
    monkeypatch.setattr(
        kvcq.engine.rocks.engine, "pieces", lambda *_: [(None, b"1"), (b"1", b"2"), (b"2", None)]
    )
    armed: list[float] = []

    def arm(done: float) -> None:
        thread = threading.Thread(target=lambda: engine.arm(1000))
        thread.start()
        thread.join()
        armed.append(done)

    engine.compact("index", progress=arm)
    assert len(armed) == 3
    assert points(engine) == [1, 1, 1, 2]


def test_arming_that_fails_early_changes_nothing(engine: RocksEngine, path: Path) -> None:
    put(engine, 0)
    blocked = block_scratch(path)
    with pytest.raises(EngineFailedError, match="expiry filter"):
        engine.arm(1000)
    blocked.unlink()
    put(engine, 1)
    assert points(engine) == [2, 2, 2, 2]
    assert engine.statistics()["filter_armed"] == 0.0


def test_a_database_that_cannot_be_reopened_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = RocksEngine.open(path, DERIVED)
    put(engine, 1)

    def refuse(*_: object, **__: object) -> None:
        raise EngineFailedError("no more files")

    with monkeypatch.context() as patched:
        patched.setattr(kvcq.engine.rocks.engine, "open_writable", refuse)
        with pytest.raises(EngineFailedError, match="no more files"):
            engine.arm(1000)
    with pytest.raises(EngineFailedError, match="could not be reopened"):
        engine.get("default", b"1")
    engine.close()
    engine = RocksEngine.open(path, DERIVED)
    assert points(engine) == [1, 1, 1, 2]
    engine.close()


def test_only_the_derived_database_takes_a_filter(tmp_path: Path) -> None:
    engine = RocksEngine.open(tmp_path / "meta", META)
    with pytest.raises(InvalidArgumentError):
        engine.arm(5)
    engine.close()
