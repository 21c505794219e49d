"""kvcq/backup/taking.py and copying.py on a real store: what is in a backup, and what is shared."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcq.backup import choose_by_id, list_backups, open_place, prune, restore, take_backup, verify
from kvcq.backup.copying import Pace, copy_files
from kvcq.errors import BackupRefusedError, BackupTargetError
from store.errors import UnknownTopicError
from tests.support.backups import LIGHT, TOPICS, bodies, opened, put_some, queues_of
from tests.support.fake_clock import FakeClock
from tests.support.small_disk import small_disk
from tests.support.stores import SEGMENT_BYTES, open_small

if TYPE_CHECKING:
    from kvcq.backup import Taken
    from kvcq.backup.copying import CopyPlan, Report
    from store.message_store import MessageStore


def names(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def test_all_that_was_put_is_in_it(store: MessageStore, clock: FakeClock, tmp_path: Path) -> None:
    store.commit_offsets("group", [("T0", 0, 11)])
    taken = take_backup(store, queues_of(store), str(tmp_path / "backups"), clock=clock)
    assert taken.backup.end_offset == store.log.appended_offset
    before = bodies(store)
    put_some(store, clock, 5)
    place = open_place(str(tmp_path / "backups"))
    assert verify(place).broken == ()
    restore(place, taken.backup, tmp_path / "again")
    assert opened(tmp_path / "again", clock) == before
    with open_small(tmp_path / "again", clock) as again:
        assert again.committed_offsets("group", [("T0", 0)]) == [11]


def test_a_second_backup_copies_what_is_new(
    store: MessageStore, clock: FakeClock, tmp_path: Path
) -> None:
    url = str(tmp_path / "backups")
    first = take_backup(store, queues_of(store), url, clock=clock)
    put_some(store, clock, 40)
    second = take_backup(store, queues_of(store), url, clock=clock)
    whole = {file.name for file in first.backup.segments if file.size == SEGMENT_BYTES}
    assert len(whole) == 3
    assert whole < {file.name for file in second.backup.segments}
    assert second.new_bytes < second.backup.size - len(whole) * SEGMENT_BYTES + 1
    clock.advance(1)
    third = take_backup(store, queues_of(store), url, clock=clock)
    assert third.new_bytes < 8192, "manifests of databases, and no more"
    place = open_place(url)
    assert [each.backup_id for each in list_backups(place)] == [
        each.backup.backup_id for each in (first, second, third)
    ]
    assert verify(place).unused == 0


def test_a_file_that_changed_in_place_is_read_again(
    store: MessageStore, clock: FakeClock, tmp_path: Path
) -> None:
    url = str(tmp_path / "backups")
    first = take_backup(store, queues_of(store), url, clock=clock)
    segment = store.config.root / first.backup.segments[0].place
    data = bytearray(segment.read_bytes())
    data[300] ^= 1
    segment.write_bytes(data)
    clock.advance(1)
    second = take_backup(store, queues_of(store), url, clock=clock)
    assert second.backup.segments[0].crc != first.backup.segments[0].crc
    assert verify(open_place(url)).broken == (), "the whole one is still there for the first"
    data[300] ^= 1
    segment.write_bytes(data)


def test_links_share_what_never_changes(
    store: MessageStore, clock: FakeClock, tmp_path: Path
) -> None:
    taken = take_backup(store, queues_of(store), str(tmp_path / "b"), link=True, clock=clock)
    for file in taken.backup.files:
        is_link = (tmp_path / "b" / file.name).stat().st_nlink > 1
        last = file.place == taken.backup.segments[-1].place
        never_changes = file.place.endswith(".sst") or file.place.startswith("snapshots/")
        is_full = file.place.startswith("commitlog/") and not last
        assert is_link == (is_full or never_changes), file.place
    before = bodies(store)
    put_some(store, clock, 40)
    restore(open_place(str(tmp_path / "b")), taken.backup, tmp_path / "again")
    assert opened(tmp_path / "again", clock) == before


def test_nothing_is_left_beside_the_databases(
    store: MessageStore, clock: FakeClock, tmp_path: Path
) -> None:
    take_backup(store, queues_of(store), str(tmp_path / "b"), clock=clock)
    assert not list(store.config.root.glob("*.tmp/copy-*"))
    assert not [name for name in names(tmp_path / "b") if name.endswith(".tmp")]


def test_retention_leaves_what_is_being_copied(clock: FakeClock, tmp_path: Path) -> None:
    with open_small(tmp_path / "store", clock, reserved_hours=0.001) as store:
        put_some(store, clock, 80)
        clock.advance(3600)
        retention = store._services.retention
        seen: list[int] = []

        def report(step: str, _done: int, _total: int) -> None:
            if step.startswith("commitlog/"):
                before = store.log.start_offset
                store.flush()
                retention.run_once(now=True)
                held = int(step.removeprefix("commitlog/"))
                assert store.log.start_offset <= held
                seen.append(store.log.start_offset - before)

        taken = take_backup(
            store, queues_of(store), str(tmp_path / "b"), report=report, clock=clock
        )
        assert sum(seen) > 0, "it follows behind the copy"
        assert taken.backup.start_offset == 0
        restore(open_place(str(tmp_path / "b")), taken.backup, tmp_path / "again")
        found = opened(tmp_path / "again", clock)
        assert len(found["T0", 0]) == 80
        store.flush()
        retention.run_once(now=True)
        last = taken.backup.segments[-1]
        assert store.log.start_offset == int(last.place.removeprefix("commitlog/"))


def test_the_place_is_for_one_store(store: MessageStore, clock: FakeClock, tmp_path: Path) -> None:
    take_backup(store, queues_of(store), str(tmp_path / "b"), clock=clock)
    before = names(tmp_path / "b")
    with (
        open_small(tmp_path / "other", FakeClock(5)) as other,
        pytest.raises(BackupRefusedError, match="another store"),
    ):
        take_backup(other, queues_of(other), str(tmp_path / "b"))
    assert names(tmp_path / "b") == before


@pytest.mark.parametrize("inside", ["", "backups", "kvcq/x", "../store/backups"])
def test_a_store_does_not_keep_its_own_backups(
    store: MessageStore, inside: str, tmp_path: Path
) -> None:
    root = store.config.root
    before = names(root)
    with pytest.raises(BackupRefusedError, match="inside the store"):
        take_backup(store, queues_of(store), str(root / inside))
    assert names(root) == before
    assert not (root / "backups").exists()
    (tmp_path / "link").symlink_to(root)
    with pytest.raises(BackupRefusedError, match="inside the store"):
        take_backup(store, queues_of(store), str(tmp_path / "link" / "b"))


@pytest.mark.parametrize("later", [b'{"step": "cut over", "and": "more"}', b"{}", None])
def test_a_migration_that_goes_on_meanwhile_is_not_in_it(
    store: MessageStore, later: bytes | None, tmp_path: Path
) -> None:
    state = store.config.root / "migration.json"
    state.write_bytes(b'{"step": "finished"}')

    def copy(plan: CopyPlan, report: Report) -> Taken:
        if later is None:
            state.unlink()
        else:
            state.write_bytes(later)
        return copy_files(plan, report)

    url = str(tmp_path / "backups")
    taken = take_backup(store, queues_of(store), url, copy=copy)
    [file] = [each for each in taken.backup.files if each.place == "migration.json"]
    assert b"".join(open_place(url).read(file.name)) == b'{"step": "finished"}'


def test_a_place_of_an_unknown_kind_is_refused(store: MessageStore) -> None:
    with pytest.raises(BackupRefusedError, match=r"ftp:// is not supported. .* s3://"):
        take_backup(store, queues_of(store), "ftp://host/x")


def test_a_place_that_vanishes_gets_no_manifest(
    store: MessageStore, clock: FakeClock, tmp_path: Path
) -> None:
    target = tmp_path / "b"

    def report(step: str, done: int, total: int) -> None:
        if done > total // 2 and target.exists():
            target.rename(tmp_path / "away")
            target.mkdir()  # a mount point without its disk, say

    with pytest.raises(BackupTargetError):
        take_backup(store, queues_of(store), str(target), report=report, clock=clock)
    assert names(target) == set()
    assert list_backups(open_place(str(tmp_path / "away"))) == []
    target.rmdir()
    (tmp_path / "away").rename(target)
    taken = take_backup(store, queues_of(store), str(target), clock=clock)
    assert taken.new_bytes <= taken.backup.size - SEGMENT_BYTES, "it went on with what was there"
    restore(open_place(str(target)), taken.backup, tmp_path / "again")
    assert opened(tmp_path / "again", clock) == bodies(store)


def test_a_file_that_is_removed_meanwhile_is_missed(
    store: MessageStore, clock: FakeClock, tmp_path: Path
) -> None:
    def report(step: str, _done: int, _total: int) -> None:
        if step == "store.json":
            next((tmp_path / "b" / "files" / "commitlog").iterdir()).unlink(missing_ok=True)

    with pytest.raises(BackupTargetError, match="is not there as it was put"):
        take_backup(store, queues_of(store), str(tmp_path / "b"), report=report, clock=clock)
    assert list_backups(open_place(str(tmp_path / "b"))) == []


class CutShortError(Exception):
    """Ends a copy."""


@given(st.data())
@settings(max_examples=6)
def test_what_was_there_before_is_in_it_whatever_goes_on(data: st.DataObject) -> None:
    """Puts, deletions, commits and retention between any two pieces, cut short and taken again."""
    with tempfile.TemporaryDirectory() as directory:
        run_beside(Path(directory), data)


def run_beside(directory: Path, data: st.DataObject) -> None:
    clock = FakeClock()
    url = str(directory / "b")
    with open_small(directory / "store", clock, reserved_hours=0.02) as store:
        put_some(store, clock, data.draw(st.integers(1, 40), "before"))
        before = bodies(store)
        left = [data.draw(st.integers(0, 12), "acts"), data.draw(st.integers(0, 3), "cuts")]

        def act(_step: str, _done: int, _total: int) -> None:
            if left[0] <= 0:
                return
            left[0] -= 1
            match data.draw(st.sampled_from(["put", "delete", "commit", "retain", "flush", "cut"])):
                case "put":
                    put_some(store, clock, 3)
                case "delete":
                    store.delete_topic(
                        "T1" if "T1" in str(store.list_topics("", None, 9)) else LIGHT
                    )
                case "commit":
                    [(_, end)] = store.bounds([("T0", 0)])
                    store.commit_offsets("group", [("T0", 0, end)])
                case "retain":
                    clock.advance(60)
                    store.flush()
                    store._services.retention.run_once(now=True)
                case "flush":
                    store.flush()
                case "cut" if left[1]:
                    left[1] -= 1
                    raise CutShortError

        taken: Taken | None = None
        while taken is None:
            try:
                taken = take_backup(store, queues_of(store), url, report=act, clock=clock)
            except CutShortError:
                assert list_backups(open_place(url)) == []
            except UnknownTopicError:
                pass  # it was deleted before
        place = open_place(url)
        assert verify(place).broken == ()
        restore(place, choose_by_id(place, None), directory / "again")
    found = opened(directory / "again", clock)
    start = taken.backup.start_offset
    for queue in range(2):
        wanted = {row for row in before["T0", queue] if int(row[1].split(b"-")[0]) >= start}
        assert wanted <= set(found.get(("T0", queue), ()))  # all of it may be gone
    assert set(found) <= {(topic, queue) for topic in TOPICS for queue in range(4)} | {(LIGHT, 0)}


def test_a_pace_is_kept_and_pauses_earn_nothing() -> None:
    now = [0.0]
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        now[0] += seconds

    pace = Pace(1000, lambda: now[0], wait)
    for _ in range(10):
        pace.pass_on(100)
    assert now[0] == pytest.approx(1.0)
    now[0] += 100
    pace.pass_on(500)
    assert now[0] == pytest.approx(101.5)
    Pace(0, lambda: now[0], wait).pass_on(1 << 40)
    assert now[0] == pytest.approx(101.5)


def test_a_place_without_its_manifest_is_no_backup(
    store: MessageStore, clock: FakeClock, tmp_path: Path
) -> None:
    taken = take_backup(store, queues_of(store), str(tmp_path / "b"), clock=clock)
    shutil.rmtree(tmp_path / "b" / "backups")
    place = open_place(str(tmp_path / "b"))
    with pytest.raises(BackupRefusedError, match="no complete backup"):
        choose_by_id(place, taken.backup.backup_id)


def test_a_place_that_fills_gets_no_manifest_and_is_gone_on_with(
    store: MessageStore, clock: FakeClock, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "small", 1 << 20) as disk:
        url = str(disk.root / "b")
        part = tmp_path / "part"
        part.write_bytes(bytes(800 << 10))
        shutil.copy(part, disk.root / "somebody's")
        with pytest.raises(BackupTargetError, match="No space left"):
            take_backup(store, queues_of(store), url, clock=clock)
        assert list_backups(open_place(url)) == []
        assert not [name for name in names(disk.root) if name.endswith(".tmp")]
        (disk.root / "somebody's").unlink()
        taken = take_backup(store, queues_of(store), url, clock=clock)
        assert taken.new_bytes < taken.backup.size
        assert verify(open_place(url)).broken == ()
        put_some(store, clock, 1)


def test_the_last_backup_is_the_newest_even_if_the_clock_was_set_back(
    store: MessageStore, clock: FakeClock, tmp_path: Path
) -> None:
    url = str(tmp_path / "backups")
    take_backup(store, queues_of(store), url, clock=clock)
    clock.jump(-3600)
    put_some(store, clock, 5)
    last = take_backup(store, queues_of(store), url, clock=clock).backup
    assert last.taken_ms == clock.now_ms()
    place = open_place(url)
    assert choose_by_id(place, None) == last
    prune(place, 1)
    assert list_backups(place) == [last]
