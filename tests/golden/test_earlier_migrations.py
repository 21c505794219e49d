"""Stores that an earlier version left in a migration: their sides and their state go on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from migration.check import check_store
from tests.golden.make_migrating import COMMITTED, COUNT, PHASES
from tests.support.migrating import (
    TOPICS,
    check_messages,
    config,
    differences,
    live,
    messages,
    open_store,
    settle,
)
from tests.support.unpacking import unpack

if TYPE_CHECKING:
    from migration.state.phase import Phase

_KEPT = Path(__file__).parent / "kvcq" / "migrating.tar.xz"


@pytest.mark.parametrize("phase", PHASES)
def test_a_store_in_a_migration_is_upgraded(tmp_path: Path, phase: Phase) -> None:
    unpack(_KEPT, tmp_path)
    root = tmp_path / phase.value
    with open_store(config(root)) as store:
        settle(store)
        assert live(store).state.phase is phase
        assert check_messages(store, COUNT) == COUNT
        assert store.list_committed("group", None, 10) == sorted(COMMITTED, reverse=True)
        assert {topic.name for topic in store.list_topics("", None, 100)} == set(TOPICS)
        store.put(messages(COUNT, 40))
        assert differences(store) == []
    assert not (root / "meta").exists()
    shutil.rmtree(root / "kvcq")  # the log from 0 says nothing of topics: the snapshot does
    with open_store(config(root)) as store:
        settle(store)
        assert check_messages(store, COUNT + 40) == COUNT + 40
        assert store.list_committed("group", None, 10) == sorted(COMMITTED, reverse=True)
        assert differences(store) == []
    assert [each for each in check_store(root) if each.is_fault] == []
