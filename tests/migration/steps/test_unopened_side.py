"""A side that could not be opened: no step passes over it, and a rollback is rid of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from migration.errors import IllegalStepError
from migration.sides.opener import SideOpener
from migration.state.phase import Phase
from store.errors import DiskFullError
from tests.support.migrating import (
    advance,
    check_messages,
    config,
    differences,
    done,
    live,
    make_on_files,
    messages,
    open_store,
    settle,
)

if TYPE_CHECKING:
    from pathlib import Path
    from typing import NoReturn


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a store in ROCKSDB, whose files cannot be opened for now."""
    root = tmp_path / "store"
    make_on_files(root)
    with open_store(config(root)) as store:
        store.put(messages(0, 100))
        advance(store, Phase.ROCKSDB)

    def full(*_: object) -> NoReturn:
        raise DiskFullError("the disk is full")

    monkeypatch.setattr(SideOpener, "files", full)
    return root


def test_nothing_is_verified_or_changed_without_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(config(root)) as store:
        store.put(messages(100, 50))
        with pytest.raises(IllegalStepError, match="files side could not be opened"):
            live(store).resume()
        assert live(store).state.phase is Phase.ROCKSDB
        assert live(store).state.stopped
        live(store)._keeper.move("as if resumed", stopped="")  # an earlier version did so
        with pytest.raises(IllegalStepError, match="files side could not be opened"):
            live(store).verify()
    monkeypatch.undo()
    with open_store(config(root)) as store:
        done(live(store).resume())
        settle(store)
        assert differences(store) == []
        live(store).rollback()


def test_a_finish_is_rid_of_it(root: Path) -> None:
    with open_store(config(root)) as store:
        live(store).finish()
        assert live(store).state.phase is Phase.FINISHED
        assert not live(store).state.stopped
        assert live(store).double.absent == []
        assert not (root / "consumequeue").exists()
        store.put(messages(100, 50))
        assert check_messages(store, 150) == 150
