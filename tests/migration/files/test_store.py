"""The store over files: what a reader sees, what a crash leaves, what the hazards would do."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from migration.errors import QueueGapError, QueueNameError, UnitConflictError
from migration.files.checkpoint import CHECKPOINT_FILE, read_checkpoint
from migration.files.options import Adoption, FileQueueOptions
from migration.files.store import FileQueueStore
from migration.formats.index import IndexLayout
from store.consume_queue import Boundary, Bounds, CqUnit
from store.errors import (
    DiskFullError,
    FlushError,
    StoreClosedError,
    StoreFailedError,
    StoreFormatError,
)
from tests.support.dispatch_log import DispatchLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.consume_queue import DispatchRequest

OPTIONS = FileQueueOptions(
    units_per_file=8, index=IndexLayout(slots=5, entries=12), max_open_files=6, max_cached_queues=3
)
FOREVER = 1 << 62


def open_store(
    root: Path,
    log: DispatchLog,
    *,
    adoption: Adoption = Adoption.COMPARE,
    options: FileQueueOptions = OPTIONS,
) -> FileQueueStore:
    root.mkdir(exist_ok=True)
    return FileQueueStore(
        root,
        store_time_ms=log.store_time_ms,
        record_keys=log.record_keys,
        options=options,
        adoption=adoption,
    )


def catch_up(store: FileQueueStore, log: DispatchLog) -> None:
    store.dispatch(log.since(store.dispatched_offset), log.end)


def tree(root: Path) -> dict[str, bytes]:
    """Every file and directory with its content and time of change."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else b"directory"
        for path in sorted(root.rglob("*"))
    }


def state(store: FileQueueStore, log: DispatchLog) -> dict[tuple[str, int], object]:
    """All that readers can see of the queues in the log."""
    names = {(each.topic, each.queue_id) for each in log.requests}
    names |= {(name, 0) for each in log.requests for name, _ in each.light_queues}
    return {
        name: (store.bounds(*name, log.start), store.read_units(*name, 0, 1000))
        for name in sorted(names)
    }


def expected(log: DispatchLog, log_start: int = 0) -> dict[tuple[str, int], object]:
    rows: dict[tuple[str, int], list[tuple[int, CqUnit]]] = {}
    for each in log.requests:
        unit = CqUnit(each.physical_offset, each.record_size, each.tag_code, each.store_time_ms)
        rows.setdefault((each.topic, each.queue_id), []).append((each.queue_offset, unit))
        for name, offset in each.light_queues:
            rows.setdefault((name, 0), []).append((offset, unit))
    return {name: (Bounds(found[0][0], found[-1][0] + 1), found) for name, found in rows.items()}


def filled(count: int = 40) -> DispatchLog:
    log = DispatchLog()
    for n in range(count):
        light = ("%LMQ%a", "%LMQ%b") if n % 3 == 0 else ()
        log.append(
            f"T{n % 2}",
            n % 3,
            time_ms=1_700_000_000_000 + 300 * n,
            size=100 + n,
            keys=(f"u{n}", f"k{n % 4}"),
            light=light,
        )
    return log


def test_repeating_a_dispatch_changes_no_byte(tmp_path: Path) -> None:
    log = filled()
    store = open_store(tmp_path, log)
    catch_up(store, log)
    store.flush()
    before = tree(tmp_path)
    store.dispatch(log.requests[5:], log.end)
    store.flush()
    assert tree(tmp_path) == before


def test_other_record_at_a_dispatched_offset_is_reported(tmp_path: Path) -> None:
    log = filled()
    store = open_store(tmp_path, log)
    catch_up(store, log)
    wrong = log.requests[7]._replace(record_size=1)
    with pytest.raises(UnitConflictError, match="'T1'"):
        store.dispatch([wrong], log.end)


def test_h12_hole_is_shown_and_does_not_rewind_the_reader(tmp_path: Path) -> None:
    log = filled()
    store = open_store(tmp_path, log)
    catch_up(store, log)
    store.close()
    path = tmp_path / "consumequeue" / "T0" / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[40:60] = bytes(20)
    path.write_bytes(data)
    store = open_store(tmp_path, log)
    offsets = [offset for offset, _ in store.read_units("T0", 0, 1, 4)]
    assert offsets == [1, 3, 4]
    assert store.bounds("T0", 0, 0) == (0, 7)
    store.rewrite(log.requests)
    assert state(store, log) == expected(log)


def test_restore_writes_over_damage_and_nothing_else(tmp_path: Path) -> None:
    log = filled()
    store = open_store(tmp_path, log)
    catch_up(store, log)
    store.close()
    before = tree(tmp_path)
    path = tmp_path / "consumequeue" / "%LMQ%a" / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[40:60] = b"\1" * 20
    path.write_bytes(data)
    store = open_store(tmp_path, log)
    store.rewrite([*log.requests, log.requests[0]._replace(queue_offset=99)])
    assert store.dispatched_offset == log.end
    store.close()
    assert tree(tmp_path) == before


def test_h17_reads_write_nothing(tmp_path: Path) -> None:
    log = filled()
    store = open_store(tmp_path, log)
    catch_up(store, log)
    store.close()
    before = tree(tmp_path)
    store = open_store(tmp_path, log)
    for name in ("T0", "unknown", "%LMQ%a", "%LMQ%unknown", "../T0", "a/b", "", "x" * 300):
        for queue_id in (0, 7):
            store.bounds(name, queue_id, 500)
            store.read_units(name, queue_id, 0, 10)
            store.search_time(name, queue_id, 5, Boundary.LOWER, 0)
            store.next_offsets([(name, queue_id)])
        store.queue_ids(name)
        store.query_key(name, "k1", 0, FOREVER, None, 10)
    store.dispatch([], log.end)
    store.flush()
    store.close()
    assert tree(tmp_path) == before


@pytest.mark.parametrize("name", ["%LMQ%a/b", "%LMQ%" + "x" * 300, "%LMQ%\0"])
def test_light_queue_that_cannot_be_a_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    log = DispatchLog()
    log.append("T", keys=("k",), light=("%LMQ%fine", name))
    store = open_store(tmp_path, log)
    with pytest.raises(QueueNameError, match="light queue") as caught:
        catch_up(store, log)
    assert caught.value.name == name
    assert tree(tmp_path) == {}
    assert store.bounds("T", 0, 0) == (0, 0)


@pytest.mark.parametrize("topic", ["", "..", "a/../b"])
def test_topic_that_leads_out_of_the_store_is_refused(tmp_path: Path, topic: str) -> None:
    log = DispatchLog()
    log.append(topic)
    with pytest.raises(QueueNameError, match="topic"):
        catch_up(open_store(tmp_path, log), log)
    assert tree(tmp_path) == {}


def test_h20_gap_in_one_queue_refuses_the_whole_dispatch(tmp_path: Path) -> None:
    log = DispatchLog()
    store = open_store(tmp_path, log)
    log.append("T")
    catch_up(store, log)
    store.flush()
    before = tree(tmp_path)
    log.append("U", keys=("k",))
    log.append("T", queue_offset=5)
    with pytest.raises(QueueGapError) as caught:
        catch_up(store, log)
    assert (caught.value.topic, caught.value.queue_offset) == ("T", 5)
    assert store.dispatched_offset == 100
    assert store.bounds("U", 0, 0) == (0, 0)
    assert tree(tmp_path) == before


# --- the key index -----------------------------------------------------------------------------


def hits(store: FileQueueStore, topic: str, key: str, *, limit: int = 100) -> list[int]:
    return [hit.physical_offset for hit in store.query_key(topic, key, 0, FOREVER, None, limit)]


def test_expired_records_are_no_hits(tmp_path: Path) -> None:
    log = filled(60)
    store = open_store(tmp_path, log)
    catch_up(store, log)
    log.drop(log.requests[30].physical_offset)
    assert hits(store, "T0", "u2") == []
    assert hits(store, "T0", "u40") == [log.requests[10].physical_offset]


# --- durability --------------------------------------------------------------------------------


def crash(source: Path, target: Path) -> Path:
    """What a killed process leaves: the files as they are, nothing closed."""
    return Path(shutil.copytree(source, target))


def test_kill_at_any_point_loses_nothing_that_is_in_the_log(tmp_path: Path) -> None:
    log = filled(45)
    store = open_store(tmp_path / "live", log)
    for cut in range(0, 45, 4):
        store.dispatch(log.requests[cut : cut + 4], log.requests[min(cut + 4, 44)].physical_offset)
        if cut % 3 == 0:
            store.flush()
        durable = store.durable_offset
        left = crash(tmp_path / "live", tmp_path / f"crash-{cut}")
        again = open_store(left, log)
        assert again.dispatched_offset == durable
        catch_up(again, log)
        assert state(again, log) == expected(log)
        assert hits(again, "T0", "k0") == [
            each.physical_offset
            for each in log.requests
            if each.topic == "T0" and "k0" in each.keys
        ]
        again.close()


def test_power_loss_keeps_the_durable_part_and_rebuilds_the_rest(tmp_path: Path) -> None:
    log = filled(40)
    store = open_store(tmp_path / "live", log)
    half = log.requests[20].physical_offset
    store.dispatch(log.requests[:20], half)
    store.flush()
    durable = crash(tmp_path / "live", tmp_path / "durable")
    store.dispatch(log.requests[20:], log.end)
    # Pages of the second half: each file has them, or has lost them, or has lost its size.
    for seed in range(24):
        left = crash(tmp_path / "live", tmp_path / f"loss-{seed}")
        for n, path in enumerate(sorted(left.rglob("*"))):
            old = durable / path.relative_to(left)
            if not path.is_file() or path.name == CHECKPOINT_FILE:
                continue
            choice = (seed >> (n % 3)) + n
            if choice % 3 == 0:
                path.write_bytes(old.read_bytes() if old.exists() else bytes(path.stat().st_size))
            elif choice % 3 == 1 and not old.exists():
                path.write_bytes(b"")
        again = open_store(left, log)
        assert again.dispatched_offset == half
        catch_up(again, log)
        assert state(again, log) == expected(log)
        assert len(hits(again, "T1", "k1")) == 10
        again.close()
        assert not [path for path in left.rglob("0*") if path.is_file() and not path.stat().st_size]


def test_checkpoint_says_only_what_is_fsynced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(20)
    store = open_store(tmp_path, log)
    catch_up(store, log)
    recorded: list[int] = []
    fdatasync = os.fdatasync

    def watched(fd: int) -> None:
        checkpoint = read_checkpoint(tmp_path)
        assert checkpoint is not None
        recorded.append(checkpoint.dispatched_offset)
        fdatasync(fd)

    monkeypatch.setattr(os, "fdatasync", watched)
    store.flush()
    assert set(recorded) == {0}
    assert len(recorded) >= 8  # a file for each queue, and the index
    assert store.durable_offset == log.end
    recorded.clear()
    store.flush()
    assert recorded == []  # nothing is dirty


def test_failed_fsync_is_final(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(20)
    store = open_store(tmp_path, log)
    catch_up(store, log)

    def fail(_fd: int) -> None:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        with pytest.raises(FlushError):
            store.flush()
    for step in (store.flush, lambda: store.dispatch([], log.end)):
        with pytest.raises(StoreFailedError):
            step()
    assert state(store, log) == expected(log)
    store.close()
    again = open_store(tmp_path, log)
    assert again.dispatched_offset == 0


@pytest.mark.parametrize("allowed", range(14))
def test_full_disk_takes_nothing_by_halves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    log = filled(40)
    store = open_store(tmp_path, log)
    store.dispatch(log.requests[:20], log.requests[20].physical_offset)
    before = state(store, log)
    pwrite, left = os.pwrite, [allowed]

    def full(fd: int, data: bytes, position: int) -> int:
        left[0] -= 1
        if left[0] < 0 and bytes(data).strip(b"\0"):
            raise OSError(errno.ENOSPC, "no space")
        return pwrite(fd, data, position)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        try:
            catch_up(store, log)
        except DiskFullError:
            assert state(store, log) == before
            assert store.dispatched_offset == log.requests[20].physical_offset
        else:
            assert allowed > 8
    catch_up(store, log)
    assert state(store, log) == expected(log)
    store.close()
    assert state(open_store(tmp_path, log), log) == expected(log)


@pytest.mark.parametrize("position", range(0, 160, 7))
def test_damaged_checkpoint_is_refused(tmp_path: Path, position: int) -> None:
    log = filled(3)
    store = open_store(tmp_path, log)
    catch_up(store, log)
    store.close()
    path = tmp_path / CHECKPOINT_FILE
    data = bytearray(path.read_bytes())
    data[position % len(data)] ^= 0x11
    path.write_bytes(data)
    with pytest.raises(StoreFormatError, match=CHECKPOINT_FILE):
        open_store(tmp_path, log)


def test_store_that_was_closed_takes_nothing(tmp_path: Path) -> None:
    log = filled(3)
    store = open_store(tmp_path, log)
    catch_up(store, log)
    store.close()
    store.close()
    reads: list[Callable[[], object]] = [
        lambda: store.bounds("T0", 0, 0),
        lambda: store.dispatch([], 0),
        lambda: store.query_key("T0", "k", 0, 0, None, 1),
        store.flush,
    ]
    for read in reads:
        with pytest.raises(StoreClosedError):
            read()


# --- truncation, expiry, deletion ---------------------------------------------------------------


def test_h13_truncation_leaves_what_a_store_without_the_rest_would_have(tmp_path: Path) -> None:
    for kept in range(0, 41, 5):
        log = filled(40)
        store = open_store(tmp_path / str(kept), log)
        catch_up(store, log)
        end = log.requests[kept].physical_offset if kept < 40 else log.end
        store.truncate(end)
        log.truncate(end)
        assert store.dispatched_offset == log.end
        assert state(store, log) == expected(log)
        assert store.queue_ids("T0") == [0, 1, 2]
        for n in range(5):
            log.append("T0", n % 3, size=77, keys=("new",), light=("%LMQ%a",))
        catch_up(store, log)
        assert state(store, log) == expected(log)
        assert len(hits(store, "T0", "new")) == 5
        store.close()
        assert state(open_store(tmp_path / str(kept), log), log) == expected(log)


def test_h1_truncated_units_do_not_come_back_after_a_crash(tmp_path: Path) -> None:
    log = filled(40)
    store = open_store(tmp_path / "live", log)
    catch_up(store, log)
    end = log.requests[13].physical_offset
    store.truncate(end)
    log.truncate(end)
    again = open_store(crash(tmp_path / "live", tmp_path / "left"), log)
    assert again.dispatched_offset == end
    assert state(again, log) == expected(log)
    for n in range(4):
        assert hits(again, "T0", f"k{n}") == [
            each.physical_offset
            for each in log.requests
            if each.topic == "T0" and f"k{n}" in each.keys
        ]


def test_expiry_moves_min_and_keeps_offsets_going(tmp_path: Path) -> None:
    log = DispatchLog()
    for n in range(40):
        log.append("busy", keys=(f"k{n}",))
    idle = log.append("idle")
    for _ in range(10):
        log.append("busy")
    store = open_store(tmp_path, log)
    catch_up(store, log)
    log.drop(idle.physical_offset + 500)
    store.expire(log.start, idle.store_time_ms)
    assert store.bounds("busy", 0, log.start) == (44, 50)
    assert store.bounds("idle", 0, log.start) == (1, 1)
    names = sorted(path.name for path in (tmp_path / "consumequeue" / "busy" / "0").iterdir())
    assert names == [f"{800:020d}", f"{960:020d}"]
    assert store.statistics()["index_files"] == 1
    log.append("idle")
    catch_up(store, log)
    assert store.bounds("idle", 0, log.start) == (1, 2)
    store.close()
    again = open_store(tmp_path, log)
    assert again.next_offsets([("idle", 0), ("busy", 0)]) == [2, 50]


def test_expired_units_that_are_dispatched_again_are_passed_over(tmp_path: Path) -> None:
    log = DispatchLog()
    for _ in range(30):
        log.append("T")
    store = open_store(tmp_path, log)
    catch_up(store, log)
    store.expire(2000, 0)
    before = tree(tmp_path)
    store.dispatch(log.requests, log.end)
    assert tree(tmp_path) == before


def test_deleted_topic_leaves_no_file_and_no_hit(tmp_path: Path) -> None:
    log = filled(40)
    store = open_store(tmp_path, log)
    catch_up(store, log)
    store.delete_topic("T0", 1)
    assert store.applied_deletions == 1
    assert store.queue_ids("T0") == []
    assert store.bounds("T0", 0, 0) == (0, 0)
    assert hits(store, "T0", "k0") == []
    assert len(hits(store, "T1", "k1")) == 10
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "consumequeue",
        CHECKPOINT_FILE,
        "index",
    ]


def test_deletion_is_durable_and_a_replay_brings_nothing_back(tmp_path: Path) -> None:
    log = filled(40)
    store = open_store(tmp_path / "live", log)
    catch_up(store, log)
    store.delete_topic("T0", 1)
    store.delete_topic("%LMQ%a", 2)
    again = open_store(crash(tmp_path / "live", tmp_path / "left"), log)
    assert again.applied_deletions == 2
    catch_up(again, log)
    assert again.bounds("T0", 0, 0) == (0, 0)
    assert again.bounds("%LMQ%a", 0, 0) == (0, 0)
    assert again.bounds("%LMQ%b", 0, 0) == (0, 14)
    assert hits(again, "T0", "k0") == []


def test_topic_made_again_starts_clean_and_an_old_deletion_spares_it(tmp_path: Path) -> None:
    log = filled(40)
    store = open_store(tmp_path, log)
    catch_up(store, log)
    store.delete_topic("T0", 1)
    fresh = log.append("T0", 0, keys=("k0",), queue_offset=0)
    catch_up(store, log)
    store.delete_topic("T0", 1)
    assert store.bounds("T0", 0, 0) == (0, 1)
    assert hits(store, "T0", "k0") == [fresh.physical_offset]
    assert [unit.physical_offset for _, unit in store.read_units("T0", 0, 0, 9)] == [
        fresh.physical_offset
    ]


# --- files that another program wrote ------------------------------------------------------------


def legacy(root: Path, log: DispatchLog) -> Path:
    """Files as RocketMQ leaves them: no checkpoint of ours."""
    store = open_store(root, log)
    catch_up(store, log)
    store.close()
    (root / CHECKPOINT_FILE).unlink()
    return root


def test_legacy_files_are_trusted_after_a_clean_stop(tmp_path: Path) -> None:
    log = filled(40)
    root = legacy(tmp_path, log)
    before = tree(root)
    store = open_store(root, log, adoption=Adoption.TRUST)
    assert store.dispatched_offset == log.end
    assert state(store, log) == expected(log)
    assert len(hits(store, "T0", "k0")) == 10
    assert tree(root) == before


def test_legacy_files_are_compared_with_the_log(tmp_path: Path) -> None:
    log = filled(40)
    root = legacy(tmp_path, log)
    before = tree(root)
    store = open_store(root, log)
    assert store.dispatched_offset == 0
    assert state(store, log) == expected(log)
    assert tree(root) == before
    catch_up(store, log)
    store.close()
    after = tree(root)
    assert {name for name in after if "consumequeue/" in name} == {
        name for name in before if "consumequeue/" in name
    }
    assert all(after[name] == before[name] for name in before if "consumequeue" in name)
    assert len(hits(open_store(root, log), "T0", "k0")) == 10


def test_h22_index_that_the_original_deleted_is_made_again(tmp_path: Path) -> None:
    log = filled(40)
    root = legacy(tmp_path, log)
    max((root / "index").iterdir()).unlink()
    store = open_store(root, log)
    catch_up(store, log)
    for n, each in enumerate(log.requests):
        assert each.physical_offset in hits(store, each.topic, f"u{n}")


@pytest.mark.parametrize("which", ["index", "consumequeue"])
def test_removed_directory_is_derived_again(tmp_path: Path, which: str) -> None:
    log = filled(40)
    store = open_store(tmp_path, log)
    catch_up(store, log)
    store.close()
    shutil.rmtree(tmp_path / which)
    store = open_store(tmp_path, log)
    assert store.dispatched_offset == 0
    catch_up(store, log)
    assert state(store, log) == expected(log)
    assert len(hits(store, "T0", "k0")) == 10


def test_index_file_cut_short_is_made_again(tmp_path: Path) -> None:
    log = filled(40)
    store = open_store(tmp_path, log)
    catch_up(store, log)
    store.close()
    os.truncate(min((tmp_path / "index").iterdir()), 100)
    store = open_store(tmp_path, log)
    assert store.dispatched_offset == 0
    catch_up(store, log)
    assert len(hits(store, "T0", "k0")) == 10


def test_queue_is_rebuilt_from_the_log(tmp_path: Path) -> None:
    log = filled(40)
    store = open_store(tmp_path, log)
    catch_up(store, log)
    store.close()
    path = tmp_path / "consumequeue" / "T1" / "1" / f"{0:020d}"
    path.write_bytes(b"\1" * 999)
    store = open_store(tmp_path, log)
    store.rebuild_queue("T1", 1, 0)
    assert store.dispatched_offset == 0
    catch_up(store, log)
    assert state(store, log) == expected(log)
    store.rebuild_index()
    catch_up(store, log)
    assert len(hits(store, "T0", "k0")) == 10


def test_rebuilt_queue_without_live_records_keeps_its_end(tmp_path: Path) -> None:
    log = DispatchLog()
    for _ in range(20):
        log.append("T")
    store = open_store(tmp_path, log)
    catch_up(store, log)
    store.rebuild_queue("T", 0, log.end)
    assert store.next_offsets([("T", 0)]) == [20]


# --- threads and limits --------------------------------------------------------------------------


def test_readers_see_a_dense_queue_while_it_is_written(tmp_path: Path) -> None:
    log = DispatchLog()
    requests = [log.append(f"T{n % 5}", keys=(f"k{n % 7}",)) for n in range(2000)]
    store = open_store(tmp_path, log)
    done = threading.Event()
    problems: list[str] = []

    def read() -> None:
        while not done.is_set():
            for topic in ("T0", "T3"):
                low, high = store.bounds(topic, 0, 0)
                units = store.read_units(topic, 0, low, high - low)
                if [offset for offset, _ in units] != list(range(low, high)):
                    problems.append(f"{topic} {low} {high} {len(units)}")
            found = hits(store, "T1", "k1")
            if found != sorted(set(found)):
                problems.append(f"hits {found}")

    reader = threading.Thread(target=read)
    reader.start()
    for at in range(0, 2000, 50):
        batch: list[DispatchRequest] = requests[at : at + 50]
        store.dispatch(batch, batch[-1].physical_offset + 100)
        if at % 500 == 0:
            store.flush()
    done.set()
    reader.join()
    assert problems == []
    store.close()


_MANY_QUEUES = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from migration.files.options import FileQueueOptions
from migration.files.store import FileQueueStore
from tests.support.dispatch_log import DispatchLog
log = DispatchLog()
for n in range(1800):
    log.append(f"topic-{n % 30}", n // 30 % 20)
options = FileQueueOptions(max_open_files=int(sys.argv[2]), max_cached_queues=64)
store = FileQueueStore(
    Path(sys.argv[1]), store_time_ms=log.store_time_ms, record_keys=log.record_keys, options=options
)
for at in range(0, 1800, 300):
    store.dispatch(log.requests[at:at + 300], (at + 300) * 100)
store.flush()
assert all(store.bounds(f"topic-{n}", q, 0) == (0, 3) for n in range(30) for q in range(20))
statistics = store.statistics()
assert statistics["file_queue_cached_queues"] <= 64, statistics
store.close()
"""


@pytest.mark.parametrize("max_open_files", [100, 100_000])
def test_600_queues_need_no_600_files(tmp_path: Path, max_open_files: int) -> None:
    """The second limit is above what the process may open: handles are given back then."""
    command = [sys.executable, "-c", _MANY_QUEUES, str(tmp_path), str(max_open_files)]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sum(1 for _ in tmp_path.glob("consumequeue/*/*/*")) == 600
