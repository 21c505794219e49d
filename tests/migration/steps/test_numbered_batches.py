"""Numbered batches in each phase of a migration: found by their number, whatever serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from migration.state.phase import Phase
from store.format.batch_mark import BatchMark
from store.message import Message
from tests.support.migrating import advance, config, differences, live, make_on_files, open_store

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore


def put(store: MessageStore, sequence: int, *topics: str) -> None:
    mark = BatchMark("p", sequence, len(topics), 7, sequence + len(topics))
    store.append([Message(topic, b"x") for topic in topics], mark=mark)
    store.wait_visible()


@pytest.mark.parametrize("phase", [Phase.FILES, Phase.VERIFIED, Phase.ROCKSDB])
def test_batches_are_found_over_restarts_and_deletions(tmp_path: Path, phase: Phase) -> None:
    make_on_files(tmp_path)
    with open_store(config(tmp_path)) as store:
        put(store, 0, "A", "B")
        put(store, 2, "A")
        put(store, 3, "B")
        store.delete_topic("A")
        advance(store, phase)
        put(store, 4, "C")
    with open_store(config(tmp_path)) as store:
        batches = store.batches
        found = [batches.find("p", sequence) for sequence in (0, 2, 3, 4)]
        assert [each and (each.standing, each.is_deleted) for each in found] == [
            (1, False),
            (0, True),
            (1, False),
            (1, False),
        ]
        assert batches.find("p", 1) is None
        # Hashed keys have no order: each batch is looked up then.
        expected = 5 if phase is Phase.ROCKSDB else None
        assert batches.next_sequence("p") == expected
        assert batches.next_sequence("q") == (None if expected is None else 0)
        if phase is not Phase.FILES:
            assert live(store).state.phase is phase
            assert differences(store) == []
