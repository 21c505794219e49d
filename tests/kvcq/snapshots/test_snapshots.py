"""A database that is lost, damaged or ahead is made again, and every answer stays the same."""

from __future__ import annotations

import errno
import itertools
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from kvcq.engine.rocks.failures import opening_failure
from kvcq.engine.rocks.opening import open_writable
from kvcq.errors import EngineUnavailableError
from kvcq.snapshots import DIRECTORY, Snapshot, sealing, snapshots_in
from store.errors import DiskFullError, StoreFormatError
from store.message import Message
from store.metadata import Retention
from tests.support.checked import assert_whole
from tests.support.fake_clock import FakeClock
from tests.support.stores import open_small
from tests.support.tree import copy_open

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kvcq.engine.rocks.opening import Opened
    from store.message_store import MessageStore

LIGHT = ("%LMQ%a", "%LMQ%b")


def fill(store: MessageStore, clock: FakeClock) -> None:
    """One of everything, some of it in segments that are dropped then."""
    store.create_topics([("A", 4), ("gone", 2), ("idle", 1)])
    store.put([Message("gone", b"%d" % n, n % 2, light_queues=LIGHT) for n in range(9)])
    store.put([Message("idle", b"x", keys=("k",))])
    store.commit_offsets("g", [("gone", 0, 3), ("%LMQ%a", 0, 2)])
    store.commit_offsets("h", [("idle", 0, 1)])
    store.keep("A", messages=7)
    store.delete_topic("%LMQ%b")
    store.put([Message("A", bytes(4000)) for _ in range(60)])
    store.flush()
    clock.advance(2 * 3600)
    assert store.expire() > 0
    store.delete_topic("gone")
    store.put([Message("gone", b"again", 1, light_queues=LIGHT)])
    store.commit_offsets("h", [("gone", 1, 1)])
    store.delete_group("nobody")


def answers(store: MessageStore) -> dict[str, Any]:
    topics = store.list_topics("", None, 99)
    queues = [(each.name, n) for each in topics for n in range(each.queue_count)]
    queues += [(name, 0) for name in store.list_light_queues("", None, 99)]
    bounds = store.bounds(queues)
    return {
        "topics": topics,
        "bounds": dict(zip(queues, bounds, strict=True)),
        "groups": {
            group: store.list_committed(group, None, 99) for group in store.list_groups(None, 99)
        },
        "messages": {
            queue: list(store.pull(*queue, low).records)
            for queue, (low, _) in zip(queues, bounds, strict=True)
        },
        "keys": list(store.query("idle", "k").records),
    }


def spoil_manifest(root: Path) -> None:
    for path in (root / "kvcq").glob("MANIFEST-*"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


def lose_tables(root: Path) -> None:
    for path in (root / "kvcq").glob("*.sst"):
        path.unlink()


def lose_copies_too(root: Path) -> None:
    for path in [root / "kvcq", *(root / DIRECTORY).glob("*/copy")]:
        shutil.rmtree(path)


LOSSES: list[Callable[[Path], object]] = [
    lambda root: shutil.rmtree(root / "kvcq"),
    spoil_manifest,
    lose_tables,
    lose_copies_too,
]


@pytest.mark.parametrize("lose", LOSSES, ids=["gone", "bad manifest", "no tables", "sealed only"])
@pytest.mark.parametrize("was_killed", [False, True])
def test_without_its_database_a_store_answers_the_same(
    tmp_path: Path, lose: Callable[[Path], object], was_killed: bool
) -> None:
    clock, root, image = FakeClock(), tmp_path / "store", tmp_path / "image"
    with open_small(root, clock, reserved_hours=1.0) as store:
        fill(store, clock)
        expected = answers(store)
        if was_killed:
            copy_open(root, image)
    if not was_killed:
        root.rename(image)
    lose(image)
    with open_small(image, clock, reserved_hours=1.0) as store:
        assert answers(store) == expected
    assert_whole(image)


@pytest.mark.parametrize("has_snapshot", [False, True])
def test_one_line_says_why_it_is_rebuilt_and_how_long_that_takes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, has_snapshot: bool
) -> None:
    with open_small(tmp_path) as store:
        store.put([Message("T", b"x" * 1000) for _ in range(9)])
        point = store.log.appended_offset
        if has_snapshot:
            store.snapshots.take()
        store.put([Message("T", b"x")])
        end = store.log.appended_offset
    assert caplog.messages == []  # of a new store
    shutil.rmtree(tmp_path / "kvcq")
    with open_small(tmp_path):
        pass
    [line] = caplog.messages
    source = "the log" if not has_snapshot else f"the snapshot at {point} and the log"
    size = end - point if has_snapshot else end
    assert line == (
        f"{tmp_path / 'kvcq'} is missing. It is rebuilt from {source}: {size:,} bytes, about 1 s"
    )


def test_a_damaged_database_is_named_with_where_it_went(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_small(tmp_path) as store:
        store.put([Message("T", b"x")])
    spoil_manifest(tmp_path)
    with open_small(tmp_path):
        pass
    damaged, rebuilt = caplog.messages
    assert f"{tmp_path / 'kvcq'} is damaged: moved to kvcq.damaged-1: " in damaged
    assert f"{tmp_path / 'kvcq'} was damaged. It is rebuilt from the log: " in rebuilt


def test_a_database_ahead_of_the_log_is_not_used(tmp_path: Path) -> None:
    clock, root, image = FakeClock(), tmp_path / "store", tmp_path / "image"
    with open_small(root, clock, reserved_hours=1.0) as store:
        fill(store, clock)
        store.flush()
        expected = answers(store)
        copy_open(root, image)  # the log ends here
        store.create_topics([("phantom", 3)])
        store.put([Message("A", b"phantom", light_queues=LIGHT)] * 5)
        store.commit_offsets("g", [("A", 0, 1)])
        store.flush()
        shutil.rmtree(image / "kvcq")
        copy_open(root / "kvcq", image / "kvcq")
    with open_small(image, clock, reserved_hours=1.0) as store:
        assert answers(store) == expected
        store.put([Message("A", b"other")])
        assert answers(store)["groups"] == expected["groups"]
    assert_whole(image)


def test_a_snapshot_of_another_history_is_removed(tmp_path: Path) -> None:
    clock, root, image = FakeClock(), tmp_path / "store", tmp_path / "image"
    with open_small(root, clock) as store:
        store.put([Message("T", b"both")])
        store.flush()
        copy_open(root, image)
        store.put([Message("T", b"lost" * 50)])
        store.snapshots.take()
    shutil.copytree(root / DIRECTORY, image / DIRECTORY)
    with open_small(image, clock) as store:
        assert not snapshots_in(image / DIRECTORY)  # beyond the log's end
        store.put([Message("T", b"mine" * 90)])
    shutil.copytree(root / DIRECTORY, image / DIRECTORY, dirs_exist_ok=True)
    shutil.rmtree(image / "kvcq")
    with open_small(image, clock) as store:
        assert store.bounds([("T", 0)])[0].max_offset == 2
        assert len(store.pull("T", 0, 1).records) == 1
        assert not snapshots_in(image / DIRECTORY)


def test_without_database_and_snapshots_a_log_that_was_dropped_is_refused(tmp_path: Path) -> None:
    clock, root = FakeClock(), tmp_path / "store"
    with open_small(root, clock, reserved_hours=1.0) as store:
        fill(store, clock)
    shutil.rmtree(root / "kvcq")
    shutil.rmtree(root / DIRECTORY)
    with pytest.raises(StoreFormatError, match=r"kvcq repair .* --state"):
        open_small(root, clock, reserved_hours=1.0)


def test_a_log_from_its_first_byte_needs_no_snapshot(tmp_path: Path) -> None:
    clock, root = FakeClock(), tmp_path / "store"
    with open_small(root, clock) as store:
        store.create_topics([("A", 4)], {"A": Retention(messages=3)})
        store.put([Message("A", b"%d" % n, light_queues=LIGHT, keys=("k",)) for n in range(20)])
        store.put([Message("idle", b"x", keys=("k",))])
        store.commit_offsets("g", [("A", 0, 9)])
        store.delete_topic("%LMQ%b")
        expected = answers(store)
    shutil.rmtree(root / "kvcq")
    with open_small(root, clock) as store:
        assert answers(store) == expected
    assert_whole(root)


def test_sealed_snapshots_are_spread_over_the_log_and_few_have_copies(tmp_path: Path) -> None:
    clock, root = FakeClock(), tmp_path / "store"
    points: list[int] = []
    with open_small(root, clock) as store:
        for _ in range(20):
            store.put([Message("T", b"x" * 1000)])
            store.snapshots.take()
            clock.advance(60)
            points.append(store.log.appended_offset)
        store.snapshots.look()
        kept = snapshots_in(root / DIRECTORY)
        numbers = store.snapshots.statistics()
    found = [each.point for each in kept]
    assert len(found) == 8
    assert found[0] == points[0]
    assert found[-2:] == points[-2:]
    gaps = [behind - before for before, behind in itertools.pairwise(found)]
    assert max(gaps) <= 4 * (points[-1] - points[0]) // 19  # of 3 on average
    assert [each.copy.exists() for each in kept] == [False] * 6 + [True] * 2
    assert all(each.verified_files() for each in kept)
    assert numbers["snapshots.newest_age_s"] == 60
    assert numbers["snapshots.replay_bytes"] == 0


def turn(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 16
    path.write_bytes(data)


def half_a_copy(snapshot: Path) -> None:
    for path in list((snapshot / "copy").glob("*.sst"))[:1]:
        path.unlink()


def bad_manifest_of_the_copy(snapshot: Path) -> None:
    for path in (snapshot / "copy").glob("MANIFEST-*"):
        turn(path)


HURTS: list[tuple[Callable[[Path], None], bool]] = [
    (half_a_copy, True),
    (bad_manifest_of_the_copy, True),
    (lambda snapshot: turn(snapshot / "sealed"), True),
    (lambda snapshot: turn(snapshot / "state.sst"), True),
    (lambda snapshot: turn(snapshot / "mark"), False),
]


@pytest.mark.parametrize(("hurt", "is_usable"), HURTS)
@pytest.mark.parametrize("has_database", [False, True])
def test_one_half_of_a_snapshot_is_enough(
    tmp_path: Path, hurt: Callable[[Path], None], is_usable: bool, has_database: bool
) -> None:
    """With a log that begins later, so that nothing else has the state."""
    clock, root = FakeClock(), tmp_path / "store"
    with open_small(root, clock, reserved_hours=1.0) as store:
        fill(store, clock)
        expected = answers(store)
        assert store.log.start_offset > 0
    [path] = (root / DIRECTORY).iterdir()
    hurt(path)
    if not has_database:
        shutil.rmtree(root / "kvcq")
    if not (is_usable or has_database):
        with pytest.raises(StoreFormatError, match="repair"):
            open_small(root, clock, reserved_hours=1.0)
        return
    for _ in range(2):
        with open_small(root, clock, reserved_hours=1.0) as store:
            assert answers(store) == expected
            store.snapshots.take()  # over one that cannot be read, or is not sealed any more
            store.snapshots.look()
    shutil.rmtree(root / "kvcq")
    for copy in (root / DIRECTORY).glob("*/copy"):
        shutil.rmtree(copy)
    with open_small(root, clock, reserved_hours=1.0) as store:
        assert answers(store) == expected


def test_a_snapshot_that_was_not_sealed_and_has_no_copy_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, root = FakeClock(), tmp_path / "store"
    with open_small(root, clock) as store:
        store.put([Message("idle", b"x", keys=("k",))])
        with monkeypatch.context() as patch:
            patch.setattr(Snapshot, "seal", lambda _self, _files: None)
            with pytest.raises(StoreFormatError, match="not sealed"):
                store.snapshots.take()
        shutil.rmtree(next((root / DIRECTORY).glob("*/copy")))
        store.snapshots.take()  # in its place
        expected = answers(store)
        shutil.rmtree(next((root / DIRECTORY).glob("*/copy")))
        (next((root / DIRECTORY).iterdir()) / "sealed").unlink()
    with open_small(root, clock) as store:
        assert not snapshots_in(root / DIRECTORY)
        store.snapshots.look()
        assert answers(store) == expected


def test_the_process_that_seals_a_large_one_writes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    with open_small(tmp_path / "store", clock, reserved_hours=1) as store:
        fill(store, clock)
        first = store.snapshots.take()
        monkeypatch.setattr(sealing, "_SMALL_BYTES", 0)
        store.put([Message("A", b"x")])  # so that the next one is another
        second = store.snapshots.take()
        assert isinstance(first, Snapshot)
        assert isinstance(second, Snapshot)
        rows = [{at: file.rows for at, file in of.sealed_files().items()} for of in (first, second)]
        assert rows[0] == rows[1]
        assert second.verified_files().keys() == rows[0].keys()


@pytest.mark.parametrize("source", ["copy", "sealed"])
def test_a_full_disk_is_not_taken_for_a_lost_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """The snapshot is whole: nobody is to rebuild what the log still has."""
    root, clock = tmp_path / "store", FakeClock()
    with open_small(root, clock, reserved_hours=1) as store:
        fill(store, clock)
        before = answers(store)
    shutil.rmtree(root / "kvcq")
    if source == "sealed":
        for copy in (root / DIRECTORY).glob("*/copy"):
            shutil.rmtree(copy)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        if source == "copy":
            patched.setattr("kvcq.snapshots.placing.shutil.copyfile", full)
        else:
            # Written in a scratch directory first: RocksDB's own errors end with the same words.
            patched.setattr("kvcq.engine.rocks.engine.open_writable", unavailable_from(root))
        with pytest.raises((DiskFullError, EngineUnavailableError), match="No space left"):
            open_small(root, clock)
    with open_small(root, clock) as store:
        assert answers(store) == before


def unavailable_from(root: Path) -> Callable[..., Opened]:
    """Opens databases but the one that is made of a snapshot."""

    def opened(path: Path, *args: Any, **named: Any) -> Opened:  # noqa: ANN401 - passed on
        if path == root / "kvcq.new":
            raise opening_failure(path, "IO error: No space left on device: While mkdir")
        return open_writable(path, *args, **named)

    return opened
