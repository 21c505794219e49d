"""A queue whose messages all left the log goes on where it ended, whatever else is lost."""

from __future__ import annotations

import errno
import shutil
from typing import TYPE_CHECKING

import pytest

from kvcq.errors import EngineFullError
from kvcq.snapshots import DIRECTORY, sealing, snapshots_in, taking
from store.errors import DiskFullError, StoreFormatError
from store.light_queue import LMQ_PREFIX
from store.message import Message
from store.notes import Notes
from tests.support.checked import assert_whole
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import differences
from tests.support.small_disk import small_disk
from tests.support.stores import open_small
from tests.support.tree import copy_open

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kvcq.snapshots import Snapshot
    from store.message_store import MessageStore

LIGHT = f"{LMQ_PREFIX}light"


def fill(store: MessageStore) -> None:
    """A and a light queue end in the first of several segments, which has expired then."""
    store.put([Message("A", b"x", light_queues=(LIGHT,))] * 3)
    for _ in range(200):
        store.put([Message("B", b"x" * 1000)])
    store.flush()


def expire(store: MessageStore, clock: FakeClock) -> int:
    clock.advance(100 * 3600)
    return store._services.retention.run_once(now=True)


def lose_all(root: Path) -> None:
    shutil.rmtree(root / "kvcq")


def lose_copies(root: Path) -> None:
    shutil.rmtree(root / "kvcq")
    for path in (root / DIRECTORY).glob("*/copy"):
        shutil.rmtree(path)


LOSSES = pytest.mark.parametrize("lose", [lose_all, lose_copies])


@LOSSES
def test_offsets_go_on_when_the_database_is_lost_after_a_removal(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    root, clock = tmp_path / "store", FakeClock()
    queues = [("A", 0), ("B", 0), (LIGHT, 0)]
    with open_small(root, clock) as store:
        fill(store)
        assert expire(store, clock) > 0
        before = store.bounds(queues)
        assert before[0] == before[2] == (3, 3)
    lose(root)
    with open_small(root, clock) as store:
        assert store.bounds(queues) == before
        assert store.put([Message("A", b"y", light_queues=(LIGHT,))]).requests[0][:3] == ("A", 0, 3)
    # They go on in the log now, and that is what counts.
    lose(root)
    with open_small(root, clock) as store:
        assert store.bounds([("A", 0), (LIGHT, 0)]) == [(3, 4), (3, 4)]
        assert store.pull(LIGHT, 0, 3).records
        assert differences(store) == []
    assert_whole(root)


@LOSSES
@pytest.mark.parametrize("moment", ["before it goes", "when it is gone"])
def test_a_kill_around_a_removal_and_the_loss_of_the_database(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
    lose: Callable[[Path], None],
) -> None:
    root, image, clock = tmp_path / "store", tmp_path / "killed", FakeClock()
    with open_small(root, clock) as store:
        fill(store)
        drop = store.log._segments.drop_first

        def killed() -> None:
            if moment == "when it is gone":
                drop()
            copy_open(root, image)
            raise OSError("killed")

        monkeypatch.setattr(store.log._segments, "drop_first", killed)
        with pytest.raises(OSError, match="killed"):
            expire(store, clock)
        ends = [store.queues.next_offsets([queue])[0] for queue in (("A", 0), (LIGHT, 0))]
    lose(image)
    with open_small(image, clock) as store:
        assert store.queues.next_offsets([("A", 0), (LIGHT, 0)]) == ends == [3, 3]
        low = 0 if moment == "before it goes" else 3
        assert store.bounds([("A", 0), (LIGHT, 0)]) == [(low, 3), (low, 3)]
    assert_whole(image)


@LOSSES
def test_a_queue_whose_last_message_a_power_loss_takes_goes_on_where_it_ended(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    root, lost, clock = tmp_path / "store", tmp_path / "lost", FakeClock()
    with open_small(root, clock) as store:
        fill(store)
        assert expire(store, clock) > 0
    with open_small(root, clock) as store:  # one that has removed segments before
        store.put([Message("Q", b"x")] * 10)
        for _ in range(200):
            store.put([Message("B", b"x" * 1000)])
        store.flush()
        clock.advance(100 * 3600)
        store.put([Message("Q", b"last")])  # acknowledged, and not durable yet
        assert store.expire() > 0
        durable = store.flushed_offset
        copy_open(root, lost)
    # The power fails right behind the removal: what was not flushed is gone.
    for segment in (lost / "commitlog").iterdir():
        zero_from(segment, durable - int(segment.name))
    with open_small(lost, clock) as store:
        end = store.bounds([("Q", 0)])[0].max_offset
        assert end >= 10
    lose(lost)
    with open_small(lost, clock) as store:
        assert store.bounds([("Q", 0)])[0].max_offset == end
        assert store.put([Message("Q", b"y")]).requests[0].queue_offset == end


def zero_from(segment: Path, position: int) -> None:
    with segment.open("r+b") as file:
        size = file.seek(0, 2)
        file.seek(min(size, max(0, position)))
        file.write(bytes(size - file.tell()))


@pytest.mark.parametrize("what", ["the copy", "the sealed files", "what was sealed is damaged"])
def test_nothing_goes_when_the_ends_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    root, clock = tmp_path / "store", FakeClock()

    def fail(*_: object) -> None:
        raise OSError("no sync")

    def damaged(_snapshot: Snapshot) -> None:
        raise StoreFormatError(root, "is not the file that was sealed")

    with open_small(root, clock) as store:
        fill(store)
        error: type[Exception] = OSError
        with monkeypatch.context() as patched:
            if what == "the copy":
                patched.setattr(store.snapshots, "_back_up", fail)
            elif what == "the sealed files":
                patched.setattr(taking, "seal", fail)
            else:
                patched.setattr("kvcq.snapshots.snapshot.Snapshot.verified_files", damaged)
                error = StoreFormatError
            with pytest.raises(error):
                expire(store, clock)
        assert store.log.start_offset == 0
        assert expire(store, clock) > 0
    lose_copies(root)
    with open_small(root, clock) as store:
        assert store.bounds([("A", 0), (LIGHT, 0)]) == [(3, 3), (3, 3)]


def test_one_snapshot_covers_many_removals(tmp_path: Path) -> None:
    root, clock = tmp_path / "store", FakeClock()
    with open_small(root, clock) as store:
        fill(store)
        store.snapshots.take()
        [snapshot] = snapshots_in(root / DIRECTORY)
        while expire(store, clock):
            pass
        assert store.log.start_offset > 0
        assert [each.point for each in snapshots_in(root / DIRECTORY)] == [snapshot.point]
        for _ in range(200):
            store.put([Message("C", b"x" * 1000)])
        store.flush()
        assert expire(store, clock) > 0  # beyond it: another one is needed, and the first is not
        kept = snapshots_in(root / DIRECTORY)
        assert [each.point >= store.log.start_offset for each in kept] == [True]
        assert all(each.is_sealed for each in kept)
        assert differences(store) == []


@LOSSES
@pytest.mark.parametrize("name", ["A", LIGHT])
@pytest.mark.parametrize("is_covered_again", [False, True])
def test_p9_a_deleted_topic_takes_its_end_along(
    tmp_path: Path, name: str, lose: Callable[[Path], None], is_covered_again: bool
) -> None:
    root, clock = tmp_path / "store", FakeClock()
    with open_small(root, clock) as store:
        fill(store)
        expire(store, clock)
        store.delete_topic(name)
        if is_covered_again:
            store.snapshots.take()
    lose(root)
    with open_small(root, clock) as store:
        assert store.queues.next_offsets([(name, 0)]) == [0]
        store.put([Message("A", b"y", light_queues=(LIGHT,))])
        assert store.bounds([(name, 0)]) == [(0, 1)]
        assert differences(store) == []
    assert_whole(root)


def test_a_topic_deleted_while_a_snapshot_is_taken_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the copy of the database and its seal."""
    root, clock = tmp_path / "store", FakeClock()
    with open_small(root, clock) as store:
        fill(store)
        seal = sealing.seal

        def late(snapshot: Snapshot) -> None:
            monkeypatch.undo()
            store.delete_topics(["A", LIGHT])
            seal(snapshot)

        monkeypatch.setattr(taking, "seal", late)
        assert expire(store, clock) > 0
    lose_copies(root)
    with open_small(root, clock) as store:
        assert store.queues.next_offsets([("A", 0), (LIGHT, 0)]) == [0, 0]
        assert [topic.name for topic in store.list_topics("", None, 9)] == ["B"]
        assert differences(store) == []


@pytest.mark.parametrize("error", [DiskFullError("full"), EngineFullError("full")])
def test_where_there_is_room_for_one_snapshot_the_older_ones_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    root, clock = tmp_path / "store", FakeClock()
    with open_small(root, clock) as store:
        for _ in range(2):
            fill(store)
            store.snapshots.take()
        fill(store)
        back_up = store.snapshots._back_up  # type: ignore[attr-defined]

        def little_room() -> Path:
            if len(snapshots_in(root / DIRECTORY)) > 1:
                raise error
            return back_up()  # type: ignore[no-any-return]

        monkeypatch.setattr(store.snapshots, "_back_up", little_room)
        while expire(store, clock):
            pass
        assert store.log.start_offset > snapshots_in(root / DIRECTORY)[0].point - (64 << 10)
        [left] = snapshots_in(root / DIRECTORY)
        assert left.is_sealed
    lose_all(root)
    with open_small(root, clock) as store:
        assert store.bounds([("A", 0), (LIGHT, 0)]) == [(9, 9), (9, 9)]
        assert differences(store) == []


def test_a_full_disk_is_told_by_the_process_that_seals_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then older snapshots make room, and the log can be dropped."""
    with small_disk(tmp_path / "disk", 16 << 20) as disk:
        with open_small(disk.root / "store", FakeClock()) as store:
            fill(store)
            with monkeypatch.context() as patched:
                patched.setattr(taking, "seal", lambda _: None)
                patched.setattr("kvcq.snapshots.snapshot.Snapshot.verified_files", lambda _: {})
                store.snapshots.take()
        [snapshot] = snapshots_in(disk.root / "store" / DIRECTORY)
        monkeypatch.setattr(sealing, "_SMALL_BYTES", 0)
        disk.fill()
        with pytest.raises(DiskFullError):
            sealing.seal(snapshot)
        disk.free()
        sealing.seal(snapshot)
        assert snapshot.verified_files()


@pytest.mark.parametrize("what", ["mark", "sealed"])
def test_a_disk_without_room_for_a_few_bytes_is_full_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    put = Notes.put

    def full(notes: Notes, name: str, value: bytes) -> None:
        if name == what:
            raise OSError(errno.ENOSPC, "No space left on device")
        put(notes, name, value)

    with open_small(tmp_path / "store", FakeClock()) as store:
        fill(store)
        with monkeypatch.context() as patched:
            patched.setattr(Notes, "put", full)
            with pytest.raises(DiskFullError):
                store.snapshots.take()
        store.snapshots.take()


def test_without_room_for_any_the_newest_snapshot_and_the_log_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, clock = tmp_path / "store", FakeClock()

    def full() -> Path:
        raise DiskFullError("no room")

    with open_small(root, clock) as store:
        for _ in range(2):
            fill(store)
            store.snapshots.take()
        newest = snapshots_in(root / DIRECTORY)[-1].point
        while expire(store, clock):
            pass
        start = store.log.start_offset
        assert 0 < start <= newest
        fill(store)
        with monkeypatch.context() as patched:
            patched.setattr(store.snapshots, "_back_up", full)
            with pytest.raises(DiskFullError):
                expire(store, clock)
        assert store.log.start_offset == start
        assert [each.point for each in snapshots_in(root / DIRECTORY)] == [newest]
        assert store.put([Message("A", b"x")]).placed[0].queue_offset == 9  # puts go on
    lose_all(root)
    with open_small(root, clock) as store:
        assert store.bounds([("A", 0)])[0].max_offset == 10
