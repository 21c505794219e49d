"""kvcq/backup/restoring.py and log_cut.py: whole, to a point in time, and what is refused."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from kvcq.backup import Cut, choose_backup, choose_by_id, open_place, restore, take_backup
from kvcq.backup.log_cut import find_end
from kvcq.errors import BackupDamagedError, BackupRefusedError
from store.base import DIRECTORY_MODE
from store.errors import InvalidArgumentError
from store.log import SegmentSet
from store.message import Message
from store.metadata import KEEP_ALL, Retention
from store.state import STATE_TOPIC, Tables
from store.store_dir import StoreDir
from tests.support.backups import bodies, opened, put_some, queues_of
from tests.support.checked import assert_whole
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import differences
from tests.support.stores import SEGMENT_BYTES, open_small

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kvcq.backup import Backup, Taken
    from store.message_store import MessageStore

COUNT = 60
EARLY = 30


class Case:
    """A store of `COUNT` batches, a second apart, that was backed up, and its backup."""

    def __init__(self, root: Path) -> None:
        self.clock = FakeClock()
        self.began_ms = self.clock.now_ms()
        self.url = str(root / "b")
        with open_small(root / "store", self.clock) as store:
            put_some(store, self.clock, EARLY)
            store.commit_offsets("early", [("T0", 0, EARLY)])
            put_some(store, self.clock, COUNT - EARLY)
            # Of each batch, behind its last message.
            units = store.queues.read_units("T1", 1, 0, COUNT)
            self.ends = [unit.physical_offset + unit.record_size for _, unit in units]
            store.commit_offsets("group", [("T0", 0, COUNT)])
            self.rows = bodies(store)
            self.clock.advance(1)
            self.taken: Taken = take_backup(store, queues_of(store), self.url, clock=self.clock)
        self.place = open_place(self.url)

    @property
    def backup(self) -> Backup:
        return self.taken.backup


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("case"))


def below(case: Case, end: int) -> dict[tuple[str, int], list[tuple[int, bytes]]]:
    """What was put in batches that begin below that physical offset."""
    rows = {
        queue: [row for row in found if int(row[1].split(b"-")[0]) < end]
        for queue, found in case.rows.items()
    }
    return {queue: found for queue, found in rows.items() if found}


@pytest.mark.parametrize("kept", [1, 2, 29, 30, 31, 45, COUNT - 1, COUNT])
def test_what_was_stored_later_is_left_out(case: Case, kept: int, tmp_path: Path) -> None:
    for number, late_ms in enumerate((0, 999)):
        until_ms = case.began_ms + kept * 1000 + late_ms
        cut = Cut(until_ms=until_ms)
        root = tmp_path / f"again-{number}"
        restored = restore(case.place, case.backup, root, cut)
        found = opened(root, case.clock)
        assert found == below(case, restored.end_offset)
        assert len(found.get(("T0", 0), [])) == kept
        assert restored.last_time_ms == until_ms - late_ms
        with open_small(root, FakeClock(case.clock.now_ms())) as store:
            assert store.committed_offsets("early", [("T0", 0)]) == [
                EARLY if kept >= EARLY else None
            ]
            assert store.committed_offsets("group", [("T0", 0)]) == [
                COUNT if kept == COUNT else None
            ]
            placed = store.put([Message("T0", b"next")]).placed[0]
            assert placed.queue_offset == kept


@pytest.mark.parametrize("damaged", [{5}, {2}, {3, 4, 6}])
def test_later_segments_that_begin_with_damage_are_left_out(
    damaged: set[int], tmp_path: Path
) -> None:
    clock = FakeClock()
    began_ms, kept = clock.now_ms(), 40
    with open_small(tmp_path / "store", clock) as store:
        put_some(store, clock, 200)
        segments = sorted((tmp_path / "store/commitlog").iterdir())
        for number in damaged:
            with segments[number].open("r+b") as file:
                file.seek(100)
                file.write(b"\xff\xfe")
        clock.advance(1)
        url = str(tmp_path / "b")
        backup = take_backup(store, queues_of(store), url, clock=clock).backup
    until_ms = began_ms + kept * 1000
    restored = restore(open_place(url), backup, tmp_path / "again", Cut(until_ms=until_ms))
    assert SEGMENT_BYTES < restored.end_offset < 2 * SEGMENT_BYTES
    assert restored.last_time_ms == until_ms
    assert len(opened(tmp_path / "again", clock)["T0", 0]) == kept


def test_a_cut_at_an_offset_ends_behind_a_whole_batch(case: Case, tmp_path: Path) -> None:
    end = case.backup.end_offset
    starts = sorted({int(row[1].split(b"-")[0]) for row in case.rows["T0", 0]})
    edges = [starts[1] + 1, starts[20], SEGMENT_BYTES, 2 * SEGMENT_BYTES, end]
    for at in {each for edge in edges for each in (edge - 1, edge, edge + 1)} - {end + 1}:
        root = tmp_path / str(at)
        restored = restore(case.place, case.backup, root, Cut(until_offset=at))
        assert restored.end_offset <= at
        batches = len([each for each in case.ends if each <= at])
        found = opened(root, case.clock)
        assert len(found.get(("T0", 0), [])) == batches, at
        assert {queue: len(rows) for queue, rows in found.items()} == (
            dict.fromkeys(case.rows, batches)
        )
        shutil.rmtree(root)


def test_a_restored_store_is_backed_up_to_the_same_place(case: Case, tmp_path: Path) -> None:
    """It has another future: what both have is shared, and nothing is mixed up."""
    place = tmp_path / "b"
    shutil.copytree(case.url, place)
    cut = Cut(until_ms=case.began_ms + 1000)
    restore(open_place(str(place)), case.backup, tmp_path / "again", cut)
    clock = FakeClock(case.clock.now_ms() + 5000)
    with open_small(tmp_path / "again", clock) as store:
        put_some(store, clock, COUNT, 400)
        rows = bodies(store)
        take_backup(store, queues_of(store), str(place), clock=clock)
    for backup_id, wanted in ((case.backup.backup_id, case.rows), (None, rows)):
        root = tmp_path / f"of-{backup_id}"
        found = open_place(str(place))
        restore(found, choose_by_id(found, backup_id), root)
        assert opened(root, clock) == wanted


def test_segments_alone_are_enough_for_the_queues(case: Case, tmp_path: Path) -> None:
    restored = restore(case.place, case.backup, tmp_path / "again", segments_only=True)
    assert not (tmp_path / "again" / "kvcq").exists()
    assert restored.size < case.backup.size
    assert opened(tmp_path / "again", case.clock) == case.rows


def test_an_empty_store_comes_back(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_small(tmp_path / "store", clock) as store:
        store.create_topics([("T0", 3)])
        taken = take_backup(store, queues_of(store), str(tmp_path / "b"), clock=clock)
    assert len(taken.backup.segments) == 1
    restore(open_place(str(tmp_path / "b")), taken.backup, tmp_path / "again")
    assert opened(tmp_path / "again", clock) == {}
    with open_small(tmp_path / "again", clock) as store:
        assert store.describe_topic("T0").queue_count == 3


def test_a_queue_whose_messages_are_gone_goes_on_where_it_ended(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_small(tmp_path / "store", clock, reserved_hours=0.01) as store:
        store.put([Message("old", b"x") for _ in range(7)])
        put_some(store, clock, 60)
        clock.advance(3600)
        store.flush()
        assert store._services.retention.run_once(now=True) > 0
        taken = take_backup(store, queues_of(store), str(tmp_path / "b"), clock=clock)
    assert taken.backup.start_offset > 0
    for name, segments_only in (("whole", False), ("segments", True)):
        root = tmp_path / name
        restore(open_place(str(tmp_path / "b")), taken.backup, root, segments_only=segments_only)
        opened(root, clock)
        with open_small(root, FakeClock(clock.now_ms())) as store:
            assert store.bounds([("old", 0)])[0].max_offset == 7


def test_the_oldest_backup_that_reaches_so_far_is_chosen(tmp_path: Path) -> None:
    clock = FakeClock()
    url = str(tmp_path / "b")
    with open_small(tmp_path / "store", clock) as store:
        taken = []
        for _ in range(3):
            put_some(store, clock, 2)
            clock.advance(1)
            taken.append(take_backup(store, queues_of(store), url, clock=clock).backup)
    place = open_place(url)
    assert choose_backup(place).backup_id == taken[2].backup_id
    for number, each in enumerate(taken):
        assert choose_backup(place, until_ms=each.taken_ms - 1).backup_id == each.backup_id
        assert choose_backup(place, until_offset=each.end_offset).backup_id == each.backup_id
        if number < 2:
            later = taken[number + 1].backup_id
            assert choose_backup(place, until_ms=each.taken_ms).backup_id == later
            assert choose_backup(place, until_offset=each.end_offset + 1).backup_id == later
    with pytest.raises(BackupRefusedError, match="reaches that far"):
        choose_backup(place, until_ms=taken[2].taken_ms)
    with pytest.raises(BackupRefusedError, match="reaches that far"):
        choose_backup(place, until_offset=taken[2].end_offset + 1)


def test_a_cut_outside_the_backup_is_refused(case: Case, tmp_path: Path) -> None:
    for cut, field in (
        (Cut(until_offset=case.backup.end_offset + 1), "until_offset"),
        (Cut(until_offset=-1), "until_offset"),
        (Cut(until_ms=case.backup.taken_ms), "until_ms"),
    ):
        with pytest.raises(InvalidArgumentError) as refused:
            restore(case.place, case.backup, tmp_path / "again", cut)
        assert refused.value.field == field
    assert list(tmp_path.iterdir()) == []


def test_a_cut_that_leaves_no_message_is_refused(case: Case, tmp_path: Path) -> None:
    """It tells the first that would leave one, and that does."""
    first_ms = case.began_ms + 1000
    first_end = case.ends[0]
    for cut, told, least in (
        (Cut(until_ms=first_ms - 1), "T", Cut(until_ms=first_ms)),
        (Cut(until_offset=case.backup.start_offset), "Name ", Cut(until_offset=first_end)),
        (Cut(until_offset=first_end - 1), str(first_end), Cut(until_offset=first_end)),
    ):
        with pytest.raises(InvalidArgumentError, match=told) as refused:
            restore(case.place, case.backup, tmp_path / "again", cut)
        assert cut._asdict()[refused.value.field] is not None
        assert list(tmp_path.iterdir()) == []
        restore(case.place, case.backup, tmp_path / "again", least)
        assert [len(rows) for rows in opened(tmp_path / "again", case.clock).values()] == (
            [1] * len(case.rows)
        )
        shutil.rmtree(tmp_path / "again")


def test_a_directory_that_is_not_empty_is_left_alone(case: Case, tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "file").write_bytes(b"somebody's")
    with pytest.raises(BackupRefusedError, match="not empty"):
        restore(case.place, case.backup, tmp_path / "again")
    assert [path.name for path in tmp_path.rglob("*")] == ["again", "file"]


def test_what_an_earlier_restore_left_is_no_hindrance(case: Case, tmp_path: Path) -> None:
    (tmp_path / "again").mkdir(DIRECTORY_MODE)
    (tmp_path / "again.restoring" / "kvcq").mkdir(parents=True)
    (tmp_path / "again.restoring" / "kvcq" / "x").write_bytes(b"half")
    restore(case.place, case.backup, tmp_path / "again")
    assert opened(tmp_path / "again", case.clock) == case.rows
    assert not (tmp_path / "again.restoring").exists()


def test_two_at_once_do_not_write_one_store(case: Case, tmp_path: Path) -> None:
    """By an operator who lost patience with the first."""
    second: list[str] = []

    def begin_another(step: str, share: float) -> None:
        if step == "files" and not second:
            with pytest.raises(
                BackupRefusedError, match="another restore is writing to"
            ) as refused:
                restore(case.place, case.backup, tmp_path / "again")
            second.append(str(refused.value))

    restore(case.place, case.backup, tmp_path / "again", progress=begin_another)
    assert second
    assert opened(tmp_path / "again", case.clock) == case.rows


def test_too_little_space_is_told_before_anything_is_written(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvcq.backup.restoring._SPARE_BYTES", 1 << 62)
    with pytest.raises(BackupRefusedError, match="bytes free; the store needs"):
        restore(case.place, case.backup, tmp_path / "again")
    assert list(tmp_path.iterdir()) == []


def test_damage_anywhere_leaves_no_store(case: Case, tmp_path: Path) -> None:
    place = tmp_path / "b"
    shutil.copytree(case.url, place)
    for number, file in enumerate(case.backup.files):
        if not file.size:
            continue
        path = place / file.name
        data = path.read_bytes()
        at = number * 7919 % file.size
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(BackupDamagedError, match="damaged"):
            restore(open_place(str(place)), case.backup, tmp_path / "again")
        assert not (tmp_path / "again").exists()
        path.write_bytes(data + b"x")
        with pytest.raises(BackupDamagedError):
            restore(open_place(str(place)), case.backup, tmp_path / "again")
        path.unlink()
        with pytest.raises(BackupDamagedError, match="missing"):
            restore(open_place(str(place)), case.backup, tmp_path / "again")
        path.write_bytes(data)
    assert not (tmp_path / "again").exists()


@pytest.fixture
def batches(tmp_path: Path) -> Iterator[tuple[MessageStore, list[int]]]:
    """A store of batches that reach over segments, and where each ends."""
    with open_small(tmp_path / "batches") as store:
        ends = [
            store.put([Message("T0", b"x" * 900) for _ in range(size)]).end_offset
            for size in (1, 30, 2, 100, 1)
        ]
        yield store, ends


def test_no_cut_is_within_a_batch(batches: tuple[MessageStore, list[int]]) -> None:
    store, ends = batches
    state_ends = [
        unit.physical_offset + unit.record_size
        for _, unit in store.queues.read_units(STATE_TOPIC, 0, 0, 99)
    ]
    store.flush()
    root = store.config.root / "commitlog"
    with_blanks = SegmentSet.load(root, SEGMENT_BYTES, read_only=True)
    try:
        end = store.log.appended_offset
        for at in range(0, end + 1, 331):
            size = SEGMENT_BYTES
            start = max(0, (max(at, 1) - 1) // size * size - size)
            found = find_end(with_blanks, start, end, until_offset=at).end_offset
            # That which makes the topics is there by itself.
            wanted = max([each for each in (0, *state_ends, *ends) if each <= at])
            # A batch may be followed by the blank that closes its segment.
            assert found == wanted or (wanted < found <= at and found % size == 0), at
    finally:
        with_blanks.close()


def test_what_was_decided_behind_a_cut_is_undone(tmp_path: Path) -> None:
    clock = FakeClock()

    def told(_done: int, _all: int) -> None:
        pass

    def heads(store: MessageStore) -> dict[int, int]:
        return {head.queue_id: head.hidden for head in Tables(store.state).latest_heads()}

    with open_small(tmp_path / "store", clock) as store:
        put = [Message("K", b"%d" % n, n % 2, keys=("k",)) for n in range(8)]
        store.put(put)
        store.commit_offsets("g", [("K", 0, 1)])
        store.maintenance.keep_latest("K", 0, told)
        half = store.log.appended_offset
        store.put(put)
        store.create_topics([("later", 1)])
        store.keep("K", messages=5)
        store.commit_offsets("g", [("K", 0, 8)])
        store.commit_offsets("h", [("K", 0, 8)])
        store.maintenance.keep_latest("K", 0, told)
        store.maintenance.keep_latest("K", 1, told)
        store.delete_topic("later")
        taken = take_backup(store, queues_of(store), str(tmp_path / "b"), clock=clock)
    place = open_place(str(tmp_path / "b"))
    for name, cut, expected in (
        ("whole", Cut(), {0: 7, 1: 7}),
        ("cut", Cut(until_offset=half), {0: 3}),
        ("cut-segments", Cut(until_offset=half), {0: 3}),
    ):
        root, is_cut = tmp_path / name, cut != Cut()
        restore(place, taken.backup, root, cut, segments_only="segments" in name)
        with open_small(root, FakeClock(clock.now_ms())) as store:
            assert heads(store) == expected
            assert store.list_groups(None, 9) == (["g"] if is_cut else ["g", "h"])
            assert store.committed_offsets("g", [("K", 0)]) == [1 if is_cut else 8]
            [topic] = store.list_topics("", None, 9)
            assert topic.retention == (KEEP_ALL if is_cut else Retention(messages=5))
            assert differences(store) == []
        assert_whole(root)


def test_a_cut_before_the_first_state_is_refused_also_if_the_log_is_complete(
    tmp_path: Path,
) -> None:
    """Records of a log that was taken over do not have its topics: a snapshot has."""
    root, clock = tmp_path / "store", FakeClock()
    with open_small(root, clock) as store:
        put_some(store, clock, 3)
        taken_over = store.log.appended_offset
    StoreDir(root).begin_state(taken_over)
    with open_small(root, clock) as store:
        put_some(store, clock, 3)
        before = store.log.appended_offset
        put_some(store, clock, 3)
        store.snapshots.take_anew()
        put_some(store, clock, 3)
        behind = store.log.appended_offset
        put_some(store, clock, 3)
        taken = take_backup(store, queues_of(store), str(tmp_path / "b"), clock=clock)
    place = open_place(str(tmp_path / "b"))
    for cut in (taken_over, before):
        with pytest.raises(InvalidArgumentError, match="its oldest snapshot is of"):
            restore(place, taken.backup, tmp_path / "refused", Cut(until_offset=cut))
    assert not (tmp_path / "refused").exists()
    restore(place, taken.backup, tmp_path / "again", Cut(until_offset=behind))
    with open_small(tmp_path / "again", FakeClock(clock.now_ms())) as store:
        assert [topic.name for topic in store.list_topics("", None, 9)] == ["T0", "T1"]


def test_bytes_that_a_topic_keeps_are_counted_anew_after_a_cut(tmp_path: Path) -> None:
    clock, limit = FakeClock(), 3000
    with open_small(tmp_path / "store", clock) as store:
        put_some(store, clock, 20)
        store.keep("T0", size_bytes=limit)
        half = store.log.appended_offset
        put_some(store, clock, 20, 100)
        store.bounds([("T0", 0)])
        store._services.kept_bytes.run()
        assert store.bounds([("T0", 0)])[0].min_offset > 20
        taken = take_backup(store, queues_of(store), str(tmp_path / "b"), clock=clock)
    for segments_only in (False, True):
        root = tmp_path / f"again-{segments_only}"
        cut = Cut(until_offset=half)
        restore(
            open_place(str(tmp_path / "b")), taken.backup, root, cut, segments_only=segments_only
        )
        with open_small(root, FakeClock(clock.now_ms())) as store:
            put_some(store, clock, 20, 300)
            store.bounds([("T0", 0)])
            store._services.kept_bytes.run()
            low, high = store.bounds([("T0", 0)])[0]
            sizes = [unit.record_size for _, unit in store.queues.read_units("T0", 0, 0, high)]
            assert high == len(sizes) == 40
            assert sum(sizes[low:]) <= limit < sum(sizes[low - 1 :])


def test_a_mount_point_is_refused_before_anything_is_written(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    monkeypatch.setattr("os.path.ismount", lambda path: path == volume)
    with pytest.raises(BackupRefusedError, match="is a mount point: restore to a directory below"):
        restore(case.place, case.backup, volume)
    assert list(tmp_path.iterdir()) == [volume]
    restore(case.place, case.backup, volume / "store")


def test_a_symbolic_link_is_refused_before_anything_is_read(case: Case, tmp_path: Path) -> None:
    """A directory cannot be renamed to it: the restore failed at its end."""
    (tmp_path / "real").mkdir()
    for target in ("real", "none"):
        link = tmp_path / f"to-{target}"
        link.symlink_to(tmp_path / target)
        with pytest.raises(BackupRefusedError, match="is a symbolic link"):
            restore(case.place, case.backup, link)
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".restoring")]
