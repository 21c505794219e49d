"""Parts of a stopped store that are missing, or of another time: said, and nothing cut for it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from kvcq.inspect.findings import Kind
from migration.check import check_store
from migration.repair.queues import set_queues_aside
from server.cli.on_disk.check import remedies
from store.errors import StoreFormatError, UnknownTopicError
from store.format.record import unpack_record
from store.log.recovery import recover_log
from store.log.segment_set import SegmentSet
from store.message import Message
from tests.crash.images import damage_checkpoints, lose_checkpoints
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import differences
from tests.support.stores import SEGMENT_BYTES, open_small
from tests.support.tree import tree_digest

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore

pytestmark = pytest.mark.crash


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of four segments that was closed in order."""
    root = tmp_path / "store"
    with open_small(root) as store:
        for number in range(50):
            store.put([Message("T", b"%d " % number + b"x" * 4000, number % 2, keys=("k",))])
        store.flush()
    assert len(list((root / "commitlog").iterdir())) == 4
    assert check_store(root) == []
    return root


def segments(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def faults(root: Path) -> set[Kind]:
    return {finding.kind for finding in check_store(root) if finding.is_fault}


def bodies(store: MessageStore, topic: str, queue_id: int = 0) -> list[bytes]:
    pulled = store.pull(topic, queue_id, 0, max_messages=99)
    return [unpack_record(record).body for record in pulled.records]


# --- the end ----------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpoint", ["gone", "damaged", "there"])
def test_a_last_segment_that_is_gone_is_refused_and_queues_stay(
    root: Path, checkpoint: str
) -> None:
    segments(root)[-1].unlink()
    if checkpoint == "gone":
        lose_checkpoints(root)
    elif checkpoint == "damaged":
        damage_checkpoints(root)
    assert Kind.AHEAD_OF_LOG in faults(root)
    before = tree_digest(root / "commitlog")
    for _ in range(2):
        with pytest.raises(StoreFormatError, match="missing"):
            open_small(root)
    assert tree_digest(root / "commitlog") == before
    assert Kind.AHEAD_OF_LOG in faults(root)


def test_a_repair_that_would_lose_messages_changes_nothing_while_the_checkpoint_knows_of_them(
    root: Path,
) -> None:
    with open_small(root) as store:
        store.snapshots.take()
    last = segments(root)[-1]
    data = last.read_bytes()
    last.unlink()
    before = tree_digest(root)
    with pytest.raises(StoreFormatError, match=f"kvcq check {root}"):
        set_queues_aside(root)
    assert tree_digest(root) == before
    advice = remedies(root, check_store(root))
    assert [command for _, command in advice] == [None]
    assert "remove checkpoint and checkpoint.previous" in advice[0][0]
    last.write_bytes(data)
    assert check_store(root) == []


def test_without_the_missing_messages_the_store_goes_on_with_queues_made_again(root: Path) -> None:
    segments(root)[-1].unlink()
    lose_checkpoints(root)
    with pytest.raises(StoreFormatError, match=r"kvcq repair .* --queues"):
        open_small(root)
    set_queues_aside(root)
    with open_small(root) as store:
        assert 0 < len(bodies(store, "T")) < 25
        store.put([Message("T", b"new")])
        assert differences(store) == []
    assert check_store(root) == []


def test_a_zeroed_end_without_a_checkpoint_is_refused_after_a_clean_stop(root: Path) -> None:
    with open_small(root) as store:
        end = store.log.appended_offset
    path = segments(root)[-1]
    data = path.read_bytes()
    path.write_bytes(data[: end % SEGMENT_BYTES - 500].ljust(SEGMENT_BYTES, b"\0"))
    lose_checkpoints(root)
    assert {Kind.AHEAD_OF_LOG, Kind.CHECKPOINT_FILE} <= faults(root)
    with pytest.raises(StoreFormatError, match="missing"):
        open_small(root)
    # The same after a power loss is expected: its messages were not flushed.
    (root / "abort").write_bytes(b"1")
    with open_small(root) as store:
        assert store.log.appended_offset < end
        assert len(bodies(store, "T")) == 25
        assert len(bodies(store, "T", 1)) == 24
        assert differences(store) == []


@pytest.mark.parametrize("left", [0, 2])
def test_files_that_queues_have_records_of_are_missed_after_any_stop(root: Path, left: int) -> None:
    for path in segments(root)[left:]:
        path.unlink()
    lose_checkpoints(root)
    (root / "abort").write_bytes(b"1")
    assert left == 0 or Kind.AHEAD_OF_LOG in faults(root)
    with pytest.raises(StoreFormatError, match="missing"):
        open_small(root)


def test_a_crash_while_the_log_is_cut_is_recovered(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log's last segments go after the database that knows of them."""
    path = segments(root)[1]
    data = path.read_bytes()
    path.write_bytes(data[:30_000] + bytes(len(data) - 30_000))
    for empty in segments(root)[2:]:
        empty.write_bytes(bytes(SEGMENT_BYTES))
    lose_checkpoints(root)
    (root / "abort").write_bytes(b"1")

    def fails(self: SegmentSet, offset: int) -> None:
        for segment in list(self)[2:]:
            segment.unlink()
        raise OSError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(SegmentSet, "truncate", fails)
        with pytest.raises(OSError, match="planted"):
            open_small(root)
    assert len(segments(root)) == 2
    with open_small(root) as store:
        assert SEGMENT_BYTES < store.log.appended_offset <= SEGMENT_BYTES + 30_000
        assert differences(store) == []
    assert check_store(root) == []


def test_bytes_behind_the_end_are_said_after_a_clean_stop(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_small(root) as store:
        end = store.log.appended_offset
    with segments(root)[-1].open("r+b") as file:
        file.seek(end % SEGMENT_BYTES + 5000)
        file.write(b"stray")
    (fault,) = [finding for finding in check_store(root) if finding.is_fault]
    assert fault.kind is Kind.TORN_TAIL
    assert fault.physical_offset == end + 5000
    with open_small(root) as store:
        assert store.log.appended_offset == end
        assert len(bodies(store, "T")) == 25
    assert f"from {end + 5000} on: they are removed" in caplog.text
    assert check_store(root) == []
    # After a crash they are a torn tail, as any.
    with segments(root)[-1].open("r+b") as file:
        file.seek(end % SEGMENT_BYTES + 5000)
        file.write(b"stray")
    (root / "abort").write_bytes(b"1")
    assert faults(root) == set()
    caplog.clear()
    with open_small(root):
        assert "they are removed" not in caplog.text


def test_nothing_is_cut_before_the_end_is_found_and_told(root: Path) -> None:
    loaded = SegmentSet.load(root / "commitlog", SEGMENT_BYTES)
    told: list[int] = []

    def before_cut(end: int) -> None:
        assert loaded.end_offset == 4 * SEGMENT_BYTES  # all of the files
        told.append(end)

    found = recover_log(loaded, 0, clean=True, before_cut=before_cut)
    assert told == [found.end_offset]
    loaded.close()


# --- the beginning ----------------------------------------------------------------------------


def test_a_first_segment_removed_by_hand_is_said(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    segments(root)[0].unlink()
    (fault,) = [each for each in check_store(root) if each.kind is Kind.SEGMENTS]
    assert fault.is_fault
    assert "a log that begins at 0" in fault.expected
    with open_small(root) as store:
        assert store.log.start_offset == SEGMENT_BYTES
    assert "the segments between are missing" in caplog.text
    assert Kind.SEGMENTS in faults(root)  # until they are back, or retention has passed them


def test_segments_that_retention_removed_are_not_missed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root, clock = tmp_path / "store", FakeClock()
    with open_small(root, clock, reserved_hours=1) as store:
        for _ in range(60):
            store.put([Message("T", b"x" * 4000)])
            clock.advance(600)
        store.flush()
        store._services.retention.run_once(now=True)
        assert store.log.start_offset > 0
    assert faults(root) == set()
    with open_small(root, clock):
        pass
    assert "missing" not in caplog.text


# --- the database -----------------------------------------------------------------------------


@pytest.mark.parametrize("again", ["not made again", "made again", "written again"])
def test_a_database_from_before_a_deletion_serves_nothing_of_the_dead(
    root: Path, tmp_path: Path, again: str
) -> None:
    shutil.copytree(root / "kvcq", tmp_path / "copy")
    with open_small(root) as store:
        store.delete_topic("T")
        store.put([Message("Other", b"x")])
        store.flush()
        if again != "not made again":
            store.create_topics([("T", 4)])
        if again == "written again":
            store.put([Message("T", b"alive", 0, keys=("k",))] * 3)
    shutil.rmtree(root / "kvcq")
    shutil.copytree(tmp_path / "copy", root / "kvcq")
    assert Kind.OLD_DATABASE in faults(root)  # after a clean stop
    with open_small(root) as store:
        if again == "not made again":
            with pytest.raises(UnknownTopicError):
                store.query("T", "k")
            with pytest.raises(UnknownTopicError):
                store.pull("T", 0, 0)
        else:
            alive = [b"alive"] * 3 if again == "written again" else []
            low, high = store.bounds([("T", 0)])[0]
            assert high - low == len(alive)
            pulled = store.pull("T", 0, low)
            assert [unpack_record(each).body for each in pulled.records] == alive
            found = store.query("T", "k").records
            assert [unpack_record(each).body for each in found] == alive
            placed = store.put([Message("T", b"next", 0)]).placed[0]
            assert placed.queue_offset == high
            assert store.pull("T", 0, high).queue_offsets == [high]
        assert differences(store) == []
    assert check_store(root) == []
