"""A scrub of a store that keeps its queues in files, in both, or in RocksDB again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq.inspect import Kind, Scrub
from migration.state.phase import Phase
from tests.support.checked import checked
from tests.support.migrating import advance, config, make_on_files, messages, open_store

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore


def scrub(store: MessageStore) -> Scrub:
    found = Scrub(store.log, store.queues, lambda: store.admission, 0)
    assert not found.advance(store.queues.dispatched_offset, 1 << 40)
    return found


@pytest.mark.parametrize("phase", [Phase.FILES, Phase.DOUBLE_WRITE, Phase.ROCKSDB, Phase.FINISHED])
def test_a_whole_store_has_no_findings(tmp_path: Path, phase: Phase) -> None:
    root = tmp_path / "store"
    make_on_files(root)
    with checked(open_store(config(root))) as store:
        store.put(messages(0, 200))
        advance(store, phase)
        store.put(messages(200, 200))
        store.wait_visible()
        found = scrub(store)
        assert found.findings == []
        assert (found.records, found.units) == (401, 481)  # with that which makes the topics


def test_a_unit_that_is_missing_in_the_files_is_found(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_on_files(root)
    with open_store(config(root)) as store:
        store.put(messages(0, 200))
    [queue] = (root / "consumequeue" / "orders" / "0").iterdir()
    with queue.open("r+b") as file:
        file.seek(5 * 20)
        file.write(bytes(20))
    with open_store(config(root)) as store:
        found = scrub(store)
        assert [(one.kind, one.queue_offset) for one in found.findings] == [(Kind.MISSING_UNIT, 5)]
