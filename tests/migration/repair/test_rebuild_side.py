from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from kvcq.engine.protocol import KvBatch
from kvcq.tables.keys import UNITS, unit_key
from migration.errors import IllegalStepError
from migration.repair.rebuild_side import set_side_aside
from migration.state import SideName
from migration.state.phase import Phase
from store.errors import DamagedQueueError
from tests.support.command_line import kvcq
from tests.support.migrating import (
    advance,
    config,
    differences,
    live,
    open_store,
    settle,
    side_of,
    spoil_a_file_unit,
)
from tests.support.tree import tree_digest

if TYPE_CHECKING:
    from pathlib import Path

    from migration.sides.side import SideStore
    from migration.state.state import MigrationState
    from store.message_store import MessageStore


def test_a_side_rebuilt_by_resume_takes_a_verification_back(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance(store, Phase.VERIFIED)
    side = side_of(store, SideName.ROCKSDB)
    live(store).double.stop_side(side, DamagedQueueError("orders", 0, 7, "a row is wrong"))
    opener = live(store)._opener
    opening = opener.open

    def anew(name: SideName, state: MigrationState) -> SideStore:
        opener.remove(name)
        return opening(name, state)

    monkeypatch.setattr(opener, "open", anew)
    assert live(store).resume() is not None
    settle(store)
    assert live(store).state.phase is Phase.DOUBLE_WRITE
    with pytest.raises(IllegalStepError, match="verification"):
        live(store).cutover()
    assert differences(store) == []


@pytest.mark.parametrize("name", list(SideName))
def test_a_side_rebuilt_takes_a_verification_back(
    store: MessageStore, root: Path, name: SideName
) -> None:
    advance(store, Phase.VERIFIED)
    store.close()
    shutil.rmtree(root / ("consumequeue" if name is SideName.FILES else "kvcq"))
    set_side_aside(root, name)
    with open_store(config(root)) as again:
        settle(again)
        assert live(again).state.phase is Phase.DOUBLE_WRITE
        assert live(again).state.verified is None
        with pytest.raises(IllegalStepError, match="verification"):
            live(again).cutover()
        assert differences(again) == []


@pytest.mark.parametrize("name", list(SideName))
@pytest.mark.parametrize("phase", [Phase.DOUBLE_WRITE, Phase.VERIFIED, Phase.ROCKSDB])
def test_a_side_that_nothing_proved_wrong_is_not_made_again(
    store: MessageStore, root: Path, phase: Phase, name: SideName
) -> None:
    advance(store, phase)
    store.close()
    before = tree_digest(root)
    refused = kvcq("migrate", "resume", str(root), "--rebuild", name.value)
    assert refused.exit_code == 1
    assert "no verification has found" in " ".join(refused.output.split())
    assert f"kvcq migrate verify {root}" in " ".join(refused.output.split())
    assert tree_digest(root) == before


def test_only_the_side_that_differs_is_made_again_and_only_once(
    store: MessageStore, root: Path
) -> None:
    advance(store, Phase.VERIFIED)
    store.close()
    spoil_a_file_unit(root)
    assert kvcq("migrate", "verify", str(root)).exit_code == 1
    resume = ["migrate", "resume", str(root), "--rebuild"]
    assert kvcq(*resume, "rocksdb").exit_code == 1
    assert kvcq(*resume, "files").exit_code == 0
    assert kvcq(*resume, "files").exit_code == 1
    assert kvcq("migrate", "verify", str(root)).exit_code == 0


def test_rocksdb_is_made_again_when_a_check_finds_it_wrong(store: MessageStore, root: Path) -> None:
    advance(store, Phase.VERIFIED)
    side = side_of(store, SideName.ROCKSDB)
    engine = side.store._engine  # type: ignore[attr-defined]
    engine.write(KvBatch(deletes=[(UNITS, unit_key("orders", 0, 3))]))
    store.close()
    set_side_aside(root, SideName.ROCKSDB)
    with open_store(config(root)) as again:
        settle(again)
        assert differences(again) == []


def test_rocksdb_is_made_again_when_it_cannot_be_opened(store: MessageStore, root: Path) -> None:
    advance(store, Phase.VERIFIED)
    store.close()
    (root / "kvcq" / "CURRENT").write_text("x")
    set_side_aside(root, SideName.ROCKSDB)
    with open_store(config(root)) as again:
        settle(again)
        assert differences(again) == []
