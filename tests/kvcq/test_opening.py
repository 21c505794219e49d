"""A plain store opens; a database is given up when it is damaged, and for nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import kvcq.engine.rocks.opening
from kvcq.databases import open_derived
from kvcq.engine.protocol import KvBatch
from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import DERIVED, FamilyProfile
from kvcq.errors import EngineFailedError, EngineNewerError, EngineUnavailableError
from kvcq.opening import open_store
from kvcq.tables.keys import BOUNDS
from migration.check import check_store
from migration.repair import repair_state
from store.errors import StoreFormatError
from store.message import Message
from tests.support.stores import open_small, small_config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# RocksDB's words for a full disk, too few descriptors, and another process that has it open.
LACKING = (
    "IO error: No space left on device: While appending to file: /x/MANIFEST-000016: "
    "No space left on device",
    "IO error: While open a file for random read: /x/000012.sst: Too many open files",
    "IO error: While lock file: /x/LOCK: Resource temporarily unavailable",
)
DAMAGED = "Corruption: checksum mismatch in file MANIFEST-000016"


def plant(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """The next opening of a database fails in these words; those behind it do not."""
    real: Callable[..., object] = vars(kvcq.engine.rocks.opening)["Rdict"]
    words = iter([text])

    def opening(*arguments: object) -> object:
        if (said := next(words, None)) is not None:
            raise Exception(said)  # as the binding does
        return real(*arguments)

    monkeypatch.setattr(kvcq.engine.rocks.opening, "Rdict", opening)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "kvcq"
    engine = RocksEngine.open(path, DERIVED)
    engine.write(KvBatch(puts={BOUNDS: [(b"a", b"b")]}))
    engine.close()
    return path


def test_a_database_of_a_newer_program_is_neither_moved_nor_rebuilt(database: Path) -> None:
    newer = replace(DERIVED, families=(*DERIVED.families, FamilyProfile(name="windows")))
    RocksEngine.open(database, newer).close()
    with pytest.raises(EngineNewerError, match="column families windows"):
        open_derived(database)
    assert [entry.name for entry in database.parent.iterdir()] == ["kvcq"]
    engine = RocksEngine.open(database, newer)
    assert engine.get(BOUNDS, b"a") == b"b"
    engine.close()


def test_a_database_that_is_in_use_stays_where_it_is(database: Path) -> None:
    engine = RocksEngine.open(database, DERIVED)
    with pytest.raises(EngineUnavailableError, match="lock hold"):
        open_derived(database)
    assert engine.get(BOUNDS, b"a") == b"b"
    engine.close()
    assert [path.name for path in database.parent.iterdir()] == ["kvcq"]


@pytest.mark.parametrize("text", LACKING)
def test_a_machine_that_lacks_something_is_no_damage(
    database: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    plant(monkeypatch, text)
    with pytest.raises(EngineUnavailableError):
        open_derived(database)
    monkeypatch.undo()
    engine = open_derived(database)
    assert engine.get(BOUNDS, b"a") == b"b"
    engine.close()


def test_a_damaged_database_is_kept_beside_a_new_one(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, DAMAGED)
    engine = open_derived(database)
    assert engine.get(BOUNDS, b"a") is None
    engine.close()
    assert {path.name for path in database.parent.iterdir()} == {"kvcq", "kvcq.damaged-1"}


def test_committed_offsets_are_not_set_aside_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    with open_small(root) as store:
        store.put([Message("T", b"x")])
        store.commit_offsets("g", [("T", 0, 1)])
    plant(monkeypatch, LACKING[0])
    with pytest.raises(EngineUnavailableError):
        repair_state(root)
    plant(monkeypatch, LACKING[0])
    with pytest.raises(EngineUnavailableError):
        check_store(root)
    plant(monkeypatch, LACKING[0])
    with pytest.raises(EngineUnavailableError):
        open_small(root)
    monkeypatch.undo()
    with open_small(root) as store:
        assert store.committed_offsets("g", [("T", 0)]) == [1]


def test_damage_is_not_taken_for_something_that_passes(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, DAMAGED)
    with pytest.raises(EngineFailedError) as caught:
        RocksEngine.open(database, DERIVED)
    assert not isinstance(caught.value, EngineUnavailableError)


def test_a_plain_store_is_opened_again(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    with open_store(config) as store:
        store.put([Message("T", b"x")])
    with open_store(config) as store:
        assert store.pull("T", 0, 0).max_offset == 1


def test_a_store_with_a_migration_is_not_opened_as_a_plain_one(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    open_store(config).close()
    (tmp_path / "migration.json").write_text("{}")
    with pytest.raises(StoreFormatError, match=r"migration\.opening"):
        open_store(config)
    (tmp_path / "migration.json").unlink()
    open_store(config).close()  # the directory was let go
