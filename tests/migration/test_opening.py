from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from migration.errors import MigrationStateError
from migration.sides.double import DoubleQueueStore
from migration.state.phase import Phase
from tests.support.migrating import (
    advance,
    check_messages,
    config,
    differences,
    live,
    open_store,
    settle,
)

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore


@pytest.mark.parametrize(
    ("phase", "directory"), [(Phase.FILES, "consumequeue"), (Phase.ROCKSDB, "kvcq")]
)
def test_a_missing_side_that_serves_messages_is_refused(
    store: MessageStore, root: Path, phase: Phase, directory: str
) -> None:
    advance(store, phase)
    store.close()
    (root / directory).rename(root / "elsewhere")
    with pytest.raises(MigrationStateError, match="is missing") as refused:
        open_store(config(root))
    assert "--rebuild" in str(refused.value)
    (root / "elsewhere").rename(root / directory)
    with open_store(config(root)) as again:
        assert check_messages(again, 600) == 600


def test_the_other_side_may_be_missing_and_is_rebuilt(store: MessageStore, root: Path) -> None:
    advance(store, Phase.VERIFIED)
    store.close()
    (root / "kvcq").rename(root / "elsewhere")
    with open_store(config(root)) as again:
        assert live(again).state.phase is Phase.DOUBLE_WRITE
        settle(again)
        assert differences(again) == []


def test_a_store_that_never_had_a_migration_stands_in_rocksdb_alone(tmp_path: Path) -> None:
    with open_store(config(tmp_path / "store")) as store:
        assert not isinstance(store.queues, DoubleQueueStore)
        assert not (tmp_path / "store" / "migration.json").exists()
