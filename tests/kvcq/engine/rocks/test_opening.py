"""A database is opened whole or refused, and reading it leaves its directory alone."""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kvcq.engine.protocol import KvBatch
from kvcq.engine.rocks import RocksEngine, list_families
from kvcq.engine.rocks.options import DERIVED, FamilyProfile
from kvcq.errors import EngineClosedError, EngineFailedError, EngineNewerError
from tests.support.engines import points, put
from tests.support.tree import tree_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: What the binding writes beside RocksDB's files.
BINDING_FILE = "rocksdict-config.json"


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


def test_one_in_place_is_created_where_it_is_and_opened_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RocksEngine, "_create", None)
    for number in (1, 2):
        engine = RocksEngine.open(path, DERIVED, in_place=True)
        put(engine, number)
        engine.close()
    reader = RocksEngine.open_read_only(path, DERIVED)
    assert points(reader)[:3] == [2, 2, 2]
    reader.close()


def test_a_family_that_an_older_program_did_not_have_is_created(path: Path) -> None:
    engine = RocksEngine.open(path, DERIVED)
    put(engine, 1)
    engine.close()
    more = replace(DERIVED, families=(*DERIVED.families, FamilyProfile(name="more")))
    for _ in range(2):
        engine = RocksEngine.open(path, more)
        assert points(engine)[0] == 1
        engine.write(KvBatch(puts={"more": [(b"key", b"value")]}))
        engine.close()
    assert sorted(list_families(path)) == ["default", "index", "more", "offset", "state"]


def test_a_family_of_a_newer_program_is_no_damage(path: Path) -> None:
    more = replace(DERIVED, families=(*DERIVED.families, FamilyProfile(name="more")))
    RocksEngine.open(path, more).close()
    before = tree_digest(path)
    with pytest.raises(EngineNewerError, match=r"column families more.*newer version"):
        RocksEngine.open(path, DERIVED)
    after = tree_digest(path)
    kept = {name for name in before if not name.startswith("LOG")}  # RocksDB's info log
    assert {name: after.get(name) for name in kept} == {name: before[name] for name in kept}
    RocksEngine.open(path, more).close()


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
    before = tree_digest(path.parent)
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
    assert tree_digest(path.parent) == before


def test_reading_only_makes_no_directory(tmp_path: Path) -> None:
    with pytest.raises(EngineFailedError, match="no database"):
        RocksEngine.open_read_only(tmp_path / "none", DERIVED)
    assert list(tmp_path.iterdir()) == []


def listing(directory: Path) -> list[tuple[str, int, int, int]]:
    """Name, length, inode and time of change of everything in the directory, and of itself."""
    found = [directory, *sorted(directory.iterdir())]
    states = [(entry.name, entry.stat()) for entry in found]
    return [(name, one.st_size, one.st_ino, one.st_mtime_ns) for name, one in states]


@contextlib.contextmanager
def not_root() -> Iterator[None]:
    """Root may write anywhere: be somebody else meanwhile."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def foreign() -> Iterator[Path]:
    """A closed database as another program leaves it: nothing of the binding's in it."""
    with tempfile.TemporaryDirectory() as name:  # where somebody who is not root may look
        Path(name).chmod(0o755)
        path = Path(name) / "foreign"
        engine = RocksEngine.open(path, DERIVED)
        put(engine, 1)
        engine.close()
        (path / BINDING_FILE).unlink()
        yield path
        path.chmod(0o755)


def test_reading_leaves_a_foreign_directory_as_it_is(foreign: Path) -> None:
    before = tree_digest(foreign), listing(foreign)
    reader = RocksEngine.open_read_only(foreign, DERIVED)
    assert points(reader)[:3] == [1, 1, 1]
    reader.close()
    assert (tree_digest(foreign), listing(foreign)) == before


def test_reading_does_not_write_anew_what_is_there(path: Path) -> None:
    RocksEngine.open(path, DERIVED).close()
    assert (path / BINDING_FILE).is_file()
    before = listing(path)
    RocksEngine.open_read_only(path, DERIVED).close()
    assert listing(path) == before


def test_a_directory_that_may_not_be_written_to_is_read(foreign: Path) -> None:
    foreign.chmod(0o555)
    with not_root():
        with pytest.raises(PermissionError):
            (foreign / "probe").touch()
        reader = RocksEngine.open_read_only(foreign, DERIVED)
        assert points(reader)[:3] == [1, 1, 1]
        reader.close()


def test_links_for_reading_are_gone_after_it(
    foreign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    reader = RocksEngine.open_read_only(foreign, DERIVED)
    assert len(list(tmp_path.iterdir())) == 1
    reader.close()
    more = replace(DERIVED, families=(*DERIVED.families, FamilyProfile(name="more")))
    with pytest.raises(EngineFailedError, match=str(foreign)):
        RocksEngine.open_read_only(foreign, more)
    assert list(tmp_path.iterdir()) == []
