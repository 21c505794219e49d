"""State and queues of a stopped store are made again: of snapshots, or of what the log has."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from kvcq.inspect import Kind
from kvcq.opening import open_store
from migration.check import check_store
from migration.errors import IllegalStepError
from migration.opening import open_any
from migration.repair.queues import set_queues_aside
from migration.repair.state import repair_state
from migration.state.state import FileLayout
from migration.steps.adopting import adopt
from store.config import StoreConfig
from store.errors import StoreFormatError, UnknownTopicError
from store.message import Message
from tests.support.command_line import kvcq
from tests.support.golden_store import (
    INDEX_ENTRIES,
    INDEX_SLOTS,
    SEGMENT_BYTES,
    UNITS_PER_FILE,
    extract_golden,
)
from tests.support.migrating import make_on_files

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore


LAYOUT = FileLayout(UNITS_PER_FILE, INDEX_SLOTS, INDEX_ENTRIES)


def config(root: Path, segment_bytes: int = 64 << 10) -> StoreConfig:
    return StoreConfig(
        root=root, segment_bytes=segment_bytes, preallocate=False, reserved_hours=1e-6
    )


def fill(root: Path) -> None:
    """A store whose first records have left the log: those that made its topics are among them."""
    with open_store(config(root)) as store:
        store.put([Message("old", b"1", 2), Message("gone", b"2", 0, light_queues=("%LMQ%x",))])
        store.commit_offsets("early", [("old", 2, 1)])
        fill_segments(store)
        store.delete_topic("gone")
        store.commit_offsets("late", [("new", 1, 5)])
        expire(store)


def fill_segments(store: MessageStore) -> None:
    while store.log.appended_offset < 3 * store.config.segment_bytes:
        store.put([Message("new", b"x" * 1000, 1)])


def expire(store: MessageStore) -> None:
    store.flush()
    while not store._services.retention.run_once(now=True):
        pass  # it has expired after 3.6 ms
    assert store.log.start_offset > 0


def lose_all(root: Path) -> None:
    for name in ("kvcq", "snapshots"):
        shutil.rmtree(root / name)


def test_what_is_nowhere_is_refused_with_the_way_out_and_the_way_out_works(tmp_path: Path) -> None:
    root = tmp_path / "s"
    fill(root)
    lose_all(root)
    with pytest.raises(StoreFormatError, match=f"kvcq repair {root} --state"):
        open_store(config(root))
    made = repair_state(root)
    assert made is not None
    assert (made.topics, made.groups) == (1, 1)
    assert made.log_start > 0
    with open_store(config(root)) as store:
        assert [topic.name for topic in store.list_topics("", None, 10)] == ["new"]
        assert store.list_committed("late", None, 10) == [("new", 1, 5)]
        assert store.list_groups(None, 10) == ["late"]
        assert store.pull("new", 1, store.bounds([("new", 1)])[0].min_offset).records
        with pytest.raises(UnknownTopicError):
            store.pull("gone", 0, 0)
    assert check_store(root) == []


def test_a_database_from_before_the_log_is_no_state_that_a_start_uses(tmp_path: Path) -> None:
    """As when an older copy was brought back without its snapshots."""
    root, copy = tmp_path / "s", tmp_path / "copy"
    with open_store(config(root)) as store:
        store.put([Message("new", b"1", 1)])
    shutil.copytree(root / "kvcq", copy)
    with open_store(config(root)) as store:
        fill_segments(store)
        expire(store)
    lose_all(root)
    shutil.copytree(copy, root / "kvcq")
    with pytest.raises(StoreFormatError, match=f"kvcq repair {root} --state"):
        open_store(config(root))
    assert repair_state(root) is not None
    with open_store(config(root)) as store:
        assert store.pull("new", 1, store.bounds([("new", 1)])[0].min_offset).records


def test_delayed_messages_and_transactions_from_before_the_log_are_kept_as_far_as_it_has_them(
    tmp_path: Path,
) -> None:
    """They are moved before their segments go; what began them is no longer in the log."""
    root = tmp_path / "s"
    with open_store(config(root)) as store:
        store.put([Message("old", b"1", 0)])
        hour_ms = store.lease_time_ms() + 3_600_000
        store.timers.put([Message("old", b"waits", 0)], [hour_ms])
        set_too = store.timers.put([Message("old", b"recalled", 0)], [hour_ms])
        store.halves.begin(Message("old", b"open", 0), "g")
        fill_segments(store)
        expire(store)
        store.timers.recall("old", set_too.handles)
        store.put([Message("old", b"2", 0)])
    lose_all(root)
    assert {finding.kind for finding in check_store(root)} == {Kind.LOST_STATE}
    assert repair_state(root) is not None
    with open_store(config(root)) as store:
        assert [each.message.body for each in store.timers.page().found] == [b"waits"]
        assert store.timers.count() == 1
        assert store.halves.list() == ([], None)
    assert check_store(root) == []


@pytest.mark.parametrize("lose", ["kvcq", "CURRENT", "sealed files"])
def test_a_check_says_that_the_state_is_lost_and_after_the_repair_that_nothing_is_wrong(
    tmp_path: Path, lose: str
) -> None:
    root = tmp_path / "s"
    fill(root)
    if lose == "CURRENT":
        (root / "kvcq" / "CURRENT").write_text("x")
    else:
        shutil.rmtree(root / "kvcq")
    for snapshot in (root / "snapshots").iterdir():
        if lose == "sealed files":
            shutil.rmtree(snapshot / "copy", ignore_errors=True)
            (snapshot / "state.sst").write_bytes(b"x")
        else:
            shutil.rmtree(snapshot)
    assert [finding.kind for finding in check_store(root)] == [Kind.LOST_STATE]
    assert repair_state(root) is not None
    for snapshot in (root / "snapshots").iterdir():
        shutil.rmtree(snapshot)
    [left] = check_store(root)
    assert not left.is_fault
    assert "the next start rebuilds them" in left.note
    open_store(config(root)).close()
    assert check_store(root) == []


def test_a_copy_in_a_snapshot_is_enough(tmp_path: Path) -> None:
    root = tmp_path / "s"
    fill(root)
    shutil.rmtree(root / "kvcq")
    for path in (root / "snapshots").glob("*/*.sst"):
        path.write_bytes(b"x")
    assert [finding.is_fault for finding in check_store(root)] == [False]
    assert repair_state(root) is None
    with open_store(config(root)) as store:
        assert store.list_groups(None, 10) == ["early", "late"]


def test_a_snapshot_is_enough(tmp_path: Path) -> None:
    root = tmp_path / "s"
    fill(root)
    shutil.rmtree(root / "kvcq")
    assert repair_state(root) is None
    with open_store(config(root)) as store:
        assert [topic.name for topic in store.list_topics("", None, 10)] == ["new", "old"]
        assert store.list_groups(None, 10) == ["early", "late"]
        assert tuple(store.bounds([("old", 2)])[0]) == (1, 1)  # its offsets go on


def test_a_sound_state_needs_no_repair(tmp_path: Path) -> None:
    root = tmp_path / "s"
    fill(root)
    assert repair_state(root) is None
    told = kvcq("repair", str(root), "--state", "--json")
    assert json.loads(told.stdout) == {"repaired": None, "topics": None}


def test_a_store_that_was_taken_over_has_its_state_in_a_snapshot_alone(tmp_path: Path) -> None:
    """Its log begins at 0, and tells of no topic: a database that is empty would lose them all."""
    root = extract_golden(tmp_path)
    adopt(root, layout=LAYOUT)
    with open_any(config(root, SEGMENT_BYTES)).store as store:
        topics = store.list_topics("", None, 100)
    shutil.rmtree(root / "kvcq")
    with open_any(config(root, SEGMENT_BYTES)).store as store:
        assert store.list_topics("", None, 100) == topics
    lose_all(root)
    with pytest.raises(StoreFormatError, match=f"kvcq repair {root} --state"):
        open_any(config(root, SEGMENT_BYTES))
    assert repair_state(root) is not None
    with open_any(config(root, SEGMENT_BYTES)).store as store:
        assert {topic.name for topic in store.list_topics("", None, 100)}


def test_queues_set_aside_are_made_again_from_the_log(tmp_path: Path) -> None:
    root = tmp_path / "s"
    fill(root)
    with open_store(config(root)) as store:
        before = store.bounds([("old", 2), ("new", 1)])
    aside = set_queues_aside(root)
    assert aside.path is not None
    assert aside.path.is_dir()
    assert aside.damage == []
    with open_store(config(root)) as store:
        assert store.bounds([("old", 2), ("new", 1)]) == before
        assert store.list_groups(None, 10) == ["early", "late"]
    assert check_store(root) == []


def test_queues_are_not_made_again_where_nothing_tells_of_topics(tmp_path: Path) -> None:
    root = tmp_path / "s"
    fill(root)
    shutil.rmtree(root / "snapshots")
    (root / "kvcq" / "CURRENT").write_bytes(b"rubbish")
    with pytest.raises(StoreFormatError, match="--state"):
        set_queues_aside(root)


def test_the_queues_of_a_migration_are_its_own_affair(tmp_path: Path) -> None:
    make_on_files(tmp_path)
    with pytest.raises(IllegalStepError, match="rebuilds its sides itself"):
        set_queues_aside(tmp_path)
