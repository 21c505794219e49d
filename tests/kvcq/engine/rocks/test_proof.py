"""An opening proves that the database is the one noted last; if not, nothing in it changes."""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvcq.engine.protocol import KvBatch
from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.checksum import crc32c
from kvcq.engine.rocks.log_format import SECTOR_BYTES
from kvcq.engine.rocks.note import NOTE_NAME, read_note
from kvcq.engine.rocks.options import DERIVED, metadata_profile
from kvcq.engine.rocks.proof import NoteKeeper, prove
from kvcq.errors import EngineDamagedError, EngineFailedError, EngineUnavailableError
from tests.crash.images import PAGE, lose
from tests.kvcq.engine.rocks.test_log_format import frame
from tests.support.engines import ALL, put
from tests.support.tree import copy_open, tree_digest

if TYPE_CHECKING:
    from collections.abc import Iterator

FOOTER_BYTES = 53
#: Some bits in each run of the tests, all of them in the long one.
EACH_OR_ALL = pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.soak)])


def write(engine: RocksEngine, value: bytes) -> None:
    engine.write(KvBatch(puts={"default": [(b"k", value)]}))


def newest(database: Path, pattern: str) -> Path:
    return max(database.glob(pattern))


@pytest.fixture
def quick() -> Iterator[Path]:
    """A directory in memory where there is one: a file is written for each turned bit."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=base) as name:
        yield Path(name)


@pytest.fixture
def closed(quick: Path) -> Path:
    """A metadata database that was opened and closed twice."""
    for value in (b"old", b"new"):
        engine = RocksEngine.open(quick / "meta", metadata_profile())
        write(engine, value)
        engine.close()
    return quick / "meta"


@pytest.fixture
def crashed(closed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, copied while open: noted, grown by a flush and a log since, and by nothing else."""
    engine = RocksEngine.open(closed, metadata_profile())
    monkeypatch.setattr(NoteKeeper, "refresh", lambda _self: None)
    for value in (b"newer", b"newest"):
        write(engine, value)
        with engine._inside("test") as opened:
            engine._durability.write_out(opened)
    write(engine, b"last")
    copy = closed.with_name("crashed")
    copy_open(closed, copy)
    engine.close()
    monkeypatch.undo()
    return copy


def refused_bits(
    database: Path, path: Path, start: int, end: int, step: int = 1
) -> tuple[int, list[int]]:
    """How many turned bits of these bytes the proof refuses, and the positions it does not."""
    data = path.read_bytes()
    refused, passed = 0, []
    for bit in range(start * 8, end * 8, step):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            prove(database)
            passed.append(bit)
        except EngineDamagedError as error:
            assert str(database) in str(error)  # noqa: PT017
            refused += 1
    path.write_bytes(data)
    prove(database)
    return refused, passed


def refuses_all(database: Path, step: int) -> bool:
    """Whether the proof refuses each bit of manifest and CURRENT, and of all footers."""
    for path in (newest(database, "MANIFEST-*"), database / "CURRENT", *database.glob("*.sst")):
        size = path.stat().st_size
        start = size - FOOTER_BYTES if path.suffix == ".sst" else 0
        refused, passed = refused_bits(database, path, start, size, step)
        if passed or refused != len(range(0, (size - start) * 8, step)):
            return False
    return True


def test_every_bit_of_manifest_current_and_footers_counts(closed: Path) -> None:
    assert len(list(closed.glob("*.sst"))) == 2
    assert refuses_all(closed, 1)


@EACH_OR_ALL
def test_every_bit_of_the_derived_database_counts_too(quick: Path, step: int) -> None:
    database = quick / "kvcq"
    engine = RocksEngine.open(database, DERIVED)
    put(engine, 1)
    engine.close()
    assert len(list(database.glob("*.sst"))) == 3
    assert refuses_all(database, step)


@EACH_OR_ALL
def test_every_bit_of_the_note_is_harmless(closed: Path, step: int) -> None:
    path = closed / NOTE_NAME
    assert refused_bits(closed, path, 0, path.stat().st_size, step)[0] == 0


@EACH_OR_ALL
def test_after_a_crash_a_turned_bit_of_what_grew_is_refused_or_found_by_rocksdb(
    crashed: Path, step: int
) -> None:
    note = read_note(crashed)
    assert note is not None
    manifest = newest(crashed, "MANIFEST-*")
    assert manifest.stat().st_size > note.manifest_seal.size
    for path, noted in ((manifest, note.manifest_seal.size), (newest(crashed, "*.log"), 0)):
        size = path.stat().st_size
        _, passed = refused_bits(crashed, path, noted, size, step)
        data = path.read_bytes()
        for bit in passed[:: 1 if step == 1 else len(passed) // 12]:
            damaged = bytearray(data)
            damaged[bit // 8] ^= 1 << bit % 8
            path.write_bytes(damaged)
            with pytest.raises(EngineFailedError):
                RocksEngine.open(crashed, metadata_profile())
        path.write_bytes(data)
    engine = RocksEngine.open(crashed, metadata_profile())
    assert engine.get("default", b"k") == b"last"
    engine.close()


def test_a_manifest_torn_by_a_crash_is_opened_and_one_cut_below_the_note_is_not(
    crashed: Path,
) -> None:
    note = read_note(crashed)
    assert note is not None
    manifest = newest(crashed, "MANIFEST-*")
    data = manifest.read_bytes()
    manifest.write_bytes(data + b"\x01\x02\x03")  # an edit that was being written
    prove(crashed)
    manifest.write_bytes(data[: note.manifest_seal.size - 1])
    with pytest.raises(EngineDamagedError, match="at least"):
        prove(crashed)


def test_edits_that_are_missing_are_noticed_by_the_log_they_made_needless(crashed: Path) -> None:
    note = read_note(crashed)
    assert note is not None
    manifest = newest(crashed, "MANIFEST-*")
    # All edits behind the note are gone, and the log that was flushed under them was removed.
    manifest.write_bytes(manifest.read_bytes()[: note.manifest_seal.size])
    before = tree_digest(crashed)
    with pytest.raises(EngineDamagedError, match=r"\.log is missing"):
        RocksEngine.open(crashed, metadata_profile())
    assert tree_digest(crashed) == before  # table files that nothing names are evidence


def rows_of(database: Path) -> list[bytes]:
    """Keys of what the database holds, as a reader and then a writer finds it."""
    reader = RocksEngine.open_read_only(database, metadata_profile())
    found = [key for key, _ in reader.scan("default", *ALL)]
    reader.close()
    engine = RocksEngine.open(database, metadata_profile())
    assert [key for key, _ in engine.scan("default", *ALL)] == found
    engine.close()
    return found


@pytest.fixture
def written(quick: Path) -> tuple[Path, int, int]:
    """A copy of an open database: what of its log is noted, and what is synced, of 80 rows 20."""
    database = quick / "meta"
    chance = random.Random(5)
    engine = RocksEngine.open(database, metadata_profile())
    (log,) = database.glob("*.log")
    noted = synced = 0
    for number in range(80):
        rows = [(b"%03d" % number, chance.randbytes(chance.choice((5, 300, 700, 9000, 50_000))))]
        engine.write(KvBatch(puts={"default": rows}, sync=number < 20))
        if number == 10:
            engine._note.refresh()
            noted = log.stat().st_size
        if number == 19:
            synced = log.stat().st_size
    copy_open(database, quick / "copy")
    engine.close()
    return quick / "copy", noted, synced


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chance=st.randoms(use_true_random=False), keep=st.integers(0, 150), cut=st.booleans())
def test_pages_of_the_log_that_a_power_loss_took_take_the_writes_behind_the_last_sync(
    written: tuple[Path, int, int], chance: random.Random, keep: int, cut: bool
) -> None:
    database, _, synced = written
    with tempfile.TemporaryDirectory(dir=database.parent) as name:
        image = Path(name) / "meta"
        shutil.copytree(database, image)
        log = newest(image, "*.log")
        data = log.read_bytes()
        # What the kernel wrote out in between ends with a record or with a page.
        durable = min(synced + keep * PAGE - (synced % PAGE if keep else 0), len(data))
        lost = lose(data, durable, chance)
        if cut:
            lost = lost[: chance.randrange(durable, len(data) + 1)]
        log.write_bytes(lost)
        found = rows_of(image)
        assert found == [b"%03d" % number for number in range(len(found))]
        assert len(found) >= 20
        assert durable < len(data) or cut or len(found) == 80


def test_a_page_of_zeros_is_a_power_loss_behind_the_note_and_damage_within(
    written: tuple[Path, int, int], caplog: pytest.LogCaptureFixture
) -> None:
    database, noted, synced = written
    log = newest(database, "*.log")
    data = log.read_bytes()
    for page in range(0, noted, PAGE):
        end = min(page + PAGE, noted)
        log.write_bytes(data[:page] + bytes(end - page) + data[end:])
        with pytest.raises(EngineDamagedError, match=r"\.log is damaged"):
            RocksEngine.open(database, metadata_profile())
    at = synced + PAGE
    log.write_bytes(data[:at] + bytes(len(data) - at))
    assert len(rows_of(database)) >= 20
    assert caplog.text.count("a power loss took a page") == 1


def test_the_note_follows_the_log_of_a_database_that_hardly_grows(tmp_path: Path) -> None:
    # Memtables of some MiB: for most of its life the manifest of `meta` does not change.
    database = tmp_path / "meta"
    engine = RocksEngine.open(database, metadata_profile())
    for number in range(40):
        engine.write(KvBatch(puts={"default": [(b"%03d" % number, bytes(200))]}))
    engine.settle()
    noted = newest(database, "*.log").stat().st_size
    engine.write(KvBatch(puts={"default": [(b"999", bytes(200))]}))
    copy_open(database, tmp_path / "killed")
    engine.settle()
    copy_open(database, tmp_path / "noted")
    engine.close()
    for name, behind in (("killed", 0), ("noted", 200)):
        log = newest(tmp_path / name, "*.log")
        data = log.read_bytes()
        for at in range(0, noted + behind - SECTOR_BYTES, SECTOR_BYTES):
            log.write_bytes(data[:at] + bytes(SECTOR_BYTES) + data[at + SECTOR_BYTES :])
            with pytest.raises(EngineDamagedError, match=r"\.log is damaged"):
                RocksEngine.open(tmp_path / name, metadata_profile())


def test_a_note_of_a_log_that_stands_still_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = RocksEngine.open(tmp_path / "meta", metadata_profile())
    write(engine, b"1")
    engine.settle()
    written = []
    monkeypatch.setattr("kvcq.engine.rocks.proof.write_note", lambda *each: written.append(each))
    engine.settle()
    assert written == []
    write(engine, b"2")
    engine.settle()
    assert len(written) == 1
    engine.close()


def test_a_manifest_that_lost_a_page_ends_before_it(crashed: Path) -> None:
    note = read_note(crashed)
    assert note is not None
    manifest = newest(crashed, "MANIFEST-*")
    data = manifest.read_bytes()
    # An edit that was being written when the power went; its second page reads as zeros.
    data += frame(os.urandom(3 * PAGE))
    page = note.manifest_seal.size // PAGE * PAGE + PAGE
    manifest.write_bytes(data[:page] + bytes(PAGE) + data[page + PAGE :])
    assert rows_of(crashed) == [b"k"]


def test_an_older_manifest_is_not_taken_for_the_newest(closed: Path) -> None:
    note = read_note(closed)
    assert note is not None
    older = f"MANIFEST-{note.manifest - 1:06}"
    shutil.copy(newest(closed, "MANIFEST-*"), closed / older)
    (closed / "CURRENT").write_text(f"{older}\n")
    with pytest.raises(EngineDamagedError, match="older than the noted"):
        RocksEngine.open(closed, metadata_profile())


def test_a_refused_database_is_left_as_it_was_also_by_readers(closed: Path) -> None:
    manifest = newest(closed, "MANIFEST-*")
    data = bytearray(manifest.read_bytes())
    data[5] ^= 0x80  # the top bit of the first record's length
    manifest.write_bytes(data)
    before = tree_digest(closed.parent)
    for open_it in (RocksEngine.open, RocksEngine.open_read_only):
        with pytest.raises(EngineDamagedError, match="MANIFEST"):
            open_it(closed, metadata_profile())
    assert tree_digest(closed.parent) == before


def test_a_directory_without_a_note_opens_and_gets_one(closed: Path) -> None:
    (closed / NOTE_NAME).unlink()
    engine = RocksEngine.open(closed, metadata_profile())
    assert engine.get("default", b"k") == b"new"
    assert read_note(closed) is not None
    engine.close()
    prove(closed)


def test_a_copy_of_a_closed_database_opens(closed: Path, tmp_path: Path) -> None:
    shutil.copytree(closed, tmp_path / "copy")
    engine = RocksEngine.open(tmp_path / "copy", metadata_profile())
    assert engine.get("default", b"k") == b"new"
    engine.close()


def test_a_note_with_both_halves_damaged_or_of_a_newer_form_is_refused(closed: Path) -> None:
    path = closed / NOTE_NAME
    half = path.read_bytes()[: path.stat().st_size // 2]
    path.write_bytes(half.replace(b"form", b"from") * 2)
    with pytest.raises(EngineDamagedError, match=NOTE_NAME):
        prove(closed)
    document = json.loads(half[:-10])
    line = json.dumps({**document, "form": 2}).encode()
    path.write_bytes(b"%b %08x\n" % (line, crc32c(line)) * 2)
    with pytest.raises(EngineUnavailableError, match="newer"):
        prove(closed)


def test_the_note_follows_flushes_and_compactions(tmp_path: Path) -> None:
    engine = RocksEngine.open(tmp_path / "kvcq", DERIVED)
    for number in range(DERIVED.families[0].l0_compact - 1):  # one more, and RocksDB compacts
        put(engine, number)
        engine.flush()
        note = read_note(tmp_path / "kvcq")
        assert note is not None
        assert {f"{name:06}.sst" for name in note.files} == {
            path.name for path in (tmp_path / "kvcq").glob("*.sst")
        }
    engine.compact("default")
    note = read_note(tmp_path / "kvcq")
    assert note is not None
    assert len(note.files) == len(list((tmp_path / "kvcq").glob("*.sst")))
    engine.close()


def test_a_note_that_cannot_be_written_fails_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "meta"
    engine = RocksEngine.open(path, metadata_profile())

    def full(_database: Path, _note: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kvcq.engine.rocks.proof.write_note", full)
    for number in range(3):
        write(engine, b"%d" % number)
        with engine._inside("test") as opened:
            engine._durability.write_out(opened)
    engine.close()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    monkeypatch.undo()
    engine = RocksEngine.open(path, metadata_profile())
    assert engine.get("default", b"k") == b"2"
    engine.close()
