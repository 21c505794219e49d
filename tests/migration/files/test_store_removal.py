"""The store over files: truncation, expiry, deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from migration.files.checkpoint import CHECKPOINT_FILE
from tests.support.dispatch_log import DispatchLog, expected, seen
from tests.support.file_stores import catch_up, crash, filled, hits, open_store, tree

if TYPE_CHECKING:
    from pathlib import Path


def test_h13_truncation_leaves_what_a_store_without_the_rest_would_have(tmp_path: Path) -> None:
    for kept in range(0, 41, 5):
        log = filled(40)
        store = open_store(tmp_path / str(kept), log)
        catch_up(store, log)
        end = log.requests[kept].physical_offset if kept < 40 else log.end
        store.truncate(end)
        log.truncate(end)
        assert store.dispatched_offset == log.end
        assert seen(store, log) == expected(log)
        assert store.queue_ids("T0") == [0, 1, 2]
        for n in range(5):
            log.append("T0", n % 3, size=77, keys=("new",), light=("%LMQ%a",))
        catch_up(store, log)
        assert seen(store, log) == expected(log)
        assert len(hits(store, "T0", "new")) == 5
        store.close()
        assert seen(open_store(tmp_path / str(kept), log), log) == expected(log)


def test_h1_truncated_units_do_not_come_back_after_a_crash(tmp_path: Path) -> None:
    log = filled(40)
    store = open_store(tmp_path / "live", log)
    catch_up(store, log)
    end = log.requests[13].physical_offset
    store.truncate(end)
    log.truncate(end)
    again = open_store(crash(tmp_path / "live", tmp_path / "left"), log)
    assert again.dispatched_offset == end
    assert seen(again, log) == expected(log)
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
    store.delete_topic("T0", log.end)
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
    store.delete_topic("T0", log.end)
    store.delete_topic("%LMQ%a", log.end)
    again = open_store(crash(tmp_path / "live", tmp_path / "left"), log)
    catch_up(again, log)
    assert again.bounds("T0", 0, 0) == (0, 0)
    assert again.bounds("%LMQ%a", 0, 0) == (0, 0)
    assert again.bounds("%LMQ%b", 0, 0) == (0, 14)
    assert hits(again, "T0", "k0") == []


@pytest.mark.parametrize("killed", [False, True])
def test_what_ended_with_a_record_that_is_cut_off_is_made_again(
    tmp_path: Path, killed: bool
) -> None:
    """As after a loss of power, which takes the end of the log."""
    log = filled(40)
    store = open_store(tmp_path / "live", log)
    catch_up(store, log)
    cut = log.end
    for _ in range(3):
        log.append("T1")
    store.dispatch(log.requests[-3:], log.end)
    store.delete_topic("T0", log.end)
    if killed:
        store = open_store(crash(tmp_path / "live", tmp_path / "left"), log)
    log.truncate(cut)
    store.truncate(cut)
    catch_up(store, log)
    assert store.bounds("T0", 0, 0) == (0, 7)
    assert len(hits(store, "T0", "k0")) == 10


def test_topic_made_again_starts_clean_and_an_old_deletion_spares_it(tmp_path: Path) -> None:
    log = filled(40)
    store = open_store(tmp_path, log)
    catch_up(store, log)
    ended = log.end
    store.delete_topic("T0", ended)
    fresh = log.append("T0", 0, keys=("k0",), queue_offset=0)
    catch_up(store, log)
    store.delete_topic("T0", ended)
    assert store.bounds("T0", 0, 0) == (0, 1)
    assert hits(store, "T0", "k0") == [fresh.physical_offset]
    assert [unit.physical_offset for _, unit in store.read_units("T0", 0, 0, 9)] == [
        fresh.physical_offset
    ]
