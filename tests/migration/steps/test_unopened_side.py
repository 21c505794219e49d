"""A side that could not be opened: no step passes over it, and a rollback is rid of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq.errors import EngineUnavailableError
from migration.errors import IllegalStepError
from migration.sides.opener import SideOpener
from migration.state import SideName
from migration.state.phase import Phase
from tests.support.migrating import (
    advance,
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
    """Of a store in DOUBLE_WRITE, whose database cannot be opened for now."""
    root = tmp_path / "store"
    make_on_files(root)
    with open_store(config(root)) as store:
        store.put(messages(0, 100))
        advance(store, Phase.DOUBLE_WRITE)

    def full(self: SideOpener) -> NoReturn:
        raise EngineUnavailableError("the disk is full")

    monkeypatch.setattr(SideOpener, "rocksdb", full)
    return root


def test_nothing_is_verified_or_changed_without_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(config(root)) as store:
        store.put(messages(100, 50))
        with pytest.raises(IllegalStepError, match="rocksdb side could not be opened"):
            live(store).resume()
        assert live(store).state.phase is Phase.DOUBLE_WRITE
        assert live(store).state.stopped
        live(store)._keeper.move("as if resumed", stopped="")  # an earlier version did so
        with pytest.raises(IllegalStepError, match="rocksdb side could not be opened"):
            live(store).verify()
    monkeypatch.undo()
    with open_store(config(root)) as store:
        done(live(store).resume())
        settle(store)
        assert differences(store) == []
        assert live(store).state.phase is Phase.VERIFIED
        live(store).cutover()


def test_a_rollback_is_rid_of_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(config(root)) as store:
        assert live(store).rollback() is None
        assert live(store).state.phase is Phase.FILES
        assert not live(store).state.stopped
        assert live(store).double.absent == []
        assert not (root / "kvcq").exists()
        monkeypatch.undo()
        store.put(messages(100, 50))
        done(live(store).start())
        assert differences(store) == []
        assert live(store).double.side(SideName.ROCKSDB) is not None
