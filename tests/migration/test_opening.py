from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from migration.errors import MigrationStateError
from migration.sides.double import DoubleQueueStore
from migration.state.phase import Phase
from tests.support.migrating import (
    LIGHT,
    advance,
    check_messages,
    config,
    differences,
    live,
    messages,
    open_store,
    settle,
)

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore


def test_files_that_serve_messages_and_are_missing_are_refused(
    store: MessageStore, root: Path
) -> None:
    store.close()
    (root / "consumequeue").rename(root / "elsewhere")
    with pytest.raises(MigrationStateError, match="is missing") as refused:
        open_store(config(root))
    assert "--rebuild" in str(refused.value)
    (root / "elsewhere").rename(root / "consumequeue")
    with open_store(config(root)) as again:
        assert check_messages(again, 600) == 600


@pytest.mark.parametrize("phase", [Phase.FILES, Phase.DOUBLE_WRITE, Phase.ROCKSDB, Phase.FINISHED])
def test_a_database_that_is_lost_is_made_again(
    store: MessageStore, root: Path, phase: Phase
) -> None:
    """Of a snapshot, or of a log that tells all: topics, groups and offsets are there again."""
    advance(store, phase)
    store.snapshots.take()
    store.create_topics([("later", 3)])
    store.commit_offsets("group", [("orders", 0, 7)])
    store.delete_topic("audit-us")
    store.put(messages(600, 3))
    told = told_of(store)
    store.close()
    for lost in (["kvcq"], ["kvcq", "snapshots"]):
        for name in lost:
            shutil.rmtree(root / name)
        with open_store(config(root)) as again:
            settle(again)
            assert told_of(again) == told
            assert differences(again) == []


def told_of(store: MessageStore) -> list[object]:
    """What anybody may ask of topics and offsets."""
    topics = store.list_topics("", None, 100)
    queues = [(topic.name, at) for topic in topics for at in range(topic.queue_count)]
    return [
        topics,
        store.list_groups(None, 100),
        store.list_committed("group", None, 100),
        store.bounds([*queues, (LIGHT, 0)]),
    ]


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


@pytest.mark.parametrize("phase", [Phase.FILES, Phase.DOUBLE_WRITE, Phase.ROCKSDB])
def test_what_ended_with_a_record_that_a_power_loss_took_is_there_again(
    store: MessageStore, root: Path, tmp_path: Path, phase: Phase
) -> None:
    """In files it went when it was dispatched: before the record was durable."""
    advance(store, phase)
    store.flush()
    end = store.flushed_offset
    told = told_of(store)
    left = tmp_path / "left"
    shutil.copytree(root, left)
    store.delete_topics(["orders", LIGHT])
    for name in ("consumequeue", "file_queue_checkpoint"):  # what files made durable at once
        if (root / name).is_dir():
            shutil.rmtree(left / name)
            shutil.copytree(root / name, left / name)
        else:
            shutil.copyfile(root / name, left / name)
    with open_store(config(left)) as again:
        settle(again)
        assert again.log.appended_offset == end
        assert told_of(again) == told
        assert check_messages(again, 600) == 600
        assert differences(again) == []
