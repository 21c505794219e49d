"""What only the engine on RocksDB has: files, crashes, damage, stalls, reopening."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

import kvcq.rocks
from kvcq.engine import KvBatch
from kvcq.errors import EngineBusyError, EngineClosedError, EngineFailedError, KvcqError
from kvcq.options import DERIVED, FamilyProfile, metadata_profile
from kvcq.rocks import RocksEngine, write_sst
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


ALL = (b"", b"\xff" * 8)
META = metadata_profile("default", "marks")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kvcq"


@pytest.fixture
def engine(path: Path) -> Iterator[RocksEngine]:
    opened = RocksEngine.open(path, DERIVED)
    yield opened
    opened.close()


def put(engine: RocksEngine, number: int) -> None:
    """A row in every family, as one dispatch."""
    batch = KvBatch()
    for family in DERIVED.names:
        batch.put(family, b"%06d" % number, b"row")
    batch.put("offset", b"point", b"%d" % number)
    engine.write(batch)


def points(engine: RocksEngine) -> list[int]:
    """Rows in each family; in `offset` the dispatch point is one more."""
    counts = [len(engine.scan(family, b"0", b"9")) for family in DERIVED.names]
    point = engine.get("offset", b"point")
    return [*counts, int(point) + 1 if point is not None else 0]


def run_to_its_death(path: Path, body: str) -> None:
    """Run `body` in a child that kills itself. `engine` is the derived database at `path`."""
    code = f"""
import os, signal
from pathlib import Path
from kvcq.rocks import RocksEngine
from kvcq.options import DERIVED
from tests.kvcq.test_rocks import META, put
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


def digest(directory: Path) -> dict[str, str]:
    return {
        str(file.relative_to(directory)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in directory.rglob("*")
        if file.is_file()
    }


# --- durability -------------------------------------------------------------------------------


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


@pytest.mark.crash
def test_a_write_with_the_log_on_survives_a_kill(tmp_path: Path) -> None:
    run_to_its_death(
        tmp_path / "meta",
        """
from kvcq.engine import KvBatch
engine = RocksEngine.open(path, META)
for number in range(5):
    engine.write(KvBatch(puts={"default": [(b"%d" % number, b"")], "marks": [(b"m", b"")]}))
""",
    )
    engine = RocksEngine.open(tmp_path / "meta", META)
    assert len(engine.scan("default", *ALL)) == 5
    assert engine.get("marks", b"m") == b""
    engine.close()


def test_a_sync_that_failed_ends_writing(tmp_path: Path) -> None:
    class Unsyncable:
        def flush_wal(self, sync: bool) -> None:
            raise Exception("IO error")  # as the binding does

    engine = RocksEngine.open(tmp_path / "meta", META)
    engine.write(KvBatch(puts={"default": [(b"a", b"1")]}))
    with pytest.raises(Exception, match="IO error"):
        engine._sync(Unsyncable())  # type: ignore[arg-type]  # stands for a failing disk
    with pytest.raises(EngineFailedError, match="could not be synced"):
        engine.write(KvBatch(puts={"default": [(b"b", b"2")]}))
    with pytest.raises(EngineFailedError, match="could not be synced"):
        engine.flush()
    assert engine.scan("default", *ALL) == [(b"a", b"1")]
    with pytest.raises(EngineFailedError, match="could not be synced"):
        engine.close()
    RocksEngine.open(tmp_path / "meta", META).close()


# --- opening ----------------------------------------------------------------------------------


def spoil_manifest(path: Path) -> None:
    manifest = next(path.glob("MANIFEST-*"))
    data = bytearray(manifest.read_bytes())
    data[len(data) // 2] ^= 1
    manifest.write_bytes(data)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: (path / "CURRENT").unlink(),
        lambda path: (path / "CURRENT").write_bytes(b"rubbish"),
        spoil_manifest,
        lambda path: next(path.glob("MANIFEST-*")).unlink(),
        lambda path: next(path.glob("*.sst")).unlink(),
    ],
    ids=["no CURRENT", "bad CURRENT", "bad manifest", "no manifest", "missing file"],
)
def test_a_damaged_directory_is_refused(path: Path, spoil: Callable[[Path], object]) -> None:
    engine = RocksEngine.open(path, DERIVED)
    put(engine, 1)
    engine.close()
    spoil(path)
    with pytest.raises(EngineFailedError, match=str(path)):
        RocksEngine.open(path, DERIVED)


def test_families_must_be_the_expected_ones(path: Path) -> None:
    RocksEngine.open(path, DERIVED).close()
    fewer = replace(DERIVED, families=DERIVED.families[:2])
    with pytest.raises(EngineFailedError, match="not opened: index"):
        RocksEngine.open(path, fewer)
    more = replace(DERIVED, families=(*DERIVED.families, FamilyProfile(name="more")))
    with pytest.raises(EngineFailedError, match="not found: more"):
        RocksEngine.open(path, more)


def test_an_open_database_is_not_opened_twice(engine: RocksEngine, path: Path) -> None:
    put(engine, 1)
    with pytest.raises(EngineFailedError, match="lock"):
        RocksEngine.open(path, DERIVED)
    assert points(engine)[0] == 1


@pytest.mark.parametrize("there", [False, True])
def test_a_creation_cut_short_begins_anew(path: Path, there: bool) -> None:
    rest = path.with_name("kvcq.tmp") / "new"
    rest.mkdir(parents=True)
    (rest / "CURRENT").write_bytes(b"half")
    if there:
        path.mkdir()  # somebody made the empty directory
    engine = RocksEngine.open(path, DERIVED)
    put(engine, 1)
    engine.close()
    assert not rest.parent.exists()


def test_reading_only_changes_nothing(path: Path) -> None:
    engine = RocksEngine.open(path, DERIVED)
    put(engine, 1)
    engine.close()
    before = digest(path.parent)
    reader = RocksEngine.open_read_only(path, DERIVED)
    assert points(reader)[:3] == [1, 1, 1]
    reader.flush()
    calls: list[Callable[[], object]] = [
        lambda: put(reader, 2),
        lambda: reader.ingest("default", [path / "x.sst"], move=False),
        lambda: reader.arm(5),
        lambda: reader.compact("default"),
    ]
    for call in calls:
        with pytest.raises(EngineFailedError):
            call()
    reader.close()
    reader.close()
    with pytest.raises(EngineClosedError):
        reader.get("default", b"a")
    assert digest(path.parent) == before


def test_reading_only_makes_no_directory(tmp_path: Path) -> None:
    with pytest.raises(EngineFailedError, match="no database"):
        RocksEngine.open_read_only(tmp_path / "none", DERIVED)
    assert list(tmp_path.iterdir()) == []


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


# --- damage -----------------------------------------------------------------------------------


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


# --- stalls -----------------------------------------------------------------------------------


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
    assert engine.statistics()["write_stopped"] == 1.0
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


# --- compaction -------------------------------------------------------------------------------


def test_compaction_goes_in_pieces(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kvcq.rocks, "_PIECE_BYTES", 100_000)
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
    pieces = kvcq.rocks._pieces(opened.tables["default"], None, None)
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


def test_options_change_while_open(engine: RocksEngine) -> None:
    engine.set_options("default", {"periodic_compaction_seconds": "86400"})
    with pytest.raises(EngineFailedError, match="no_such_option"):
        engine.set_options("default", {"no_such_option": "1"})


# --- exchanging the database --------------------------------------------------------------


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
        kvcq.rocks, "_pieces", lambda *_: [(None, b"1"), (b"1", b"2"), (b"2", None)]
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
        patched.setattr(engine, "_open_database", refuse)
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


# --- files ------------------------------------------------------------------------------------


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
