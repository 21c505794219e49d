"""The store over files: what a reader sees, and what the hazards would do."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from migration.errors import QueueNameError, UnitConflictError
from store.consume_queue import Boundary
from tests.support.dispatch_log import DispatchLog, expected, seen
from tests.support.file_stores import FOREVER, catch_up, filled, hits, open_store, tree

if TYPE_CHECKING:
    from store.consume_queue import DispatchRequest

_MANY_QUEUES = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from migration.files.options import FileQueueOptions
from migration.files.store import FileQueueStore
from tests.support.dispatch_log import DispatchLog, expected, seen
log = DispatchLog()
for n in range(1800):
    log.append(f"topic-{n % 30}", n // 30 % 20)
options = FileQueueOptions(max_open_files=int(sys.argv[2]), max_cached_queues=64)
store = FileQueueStore(
    Path(sys.argv[1]), store_time_ms=log.store_time_ms, record_at=log.record_at, options=options
)
for at in range(0, 1800, 300):
    store.dispatch(log.requests[at:at + 300], (at + 300) * 100)
store.flush()
assert all(store.bounds(f"topic-{n}", q, 0) == (0, 3) for n in range(30) for q in range(20))
statistics = store.statistics()
assert statistics["file_queue_cached_queues"] <= 64, statistics
store.close()
"""


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
    assert seen(store, log) == expected(log)


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


def test_h20_a_gap_in_the_log_is_a_hole_in_the_queue(tmp_path: Path) -> None:
    log = DispatchLog()
    store = open_store(tmp_path, log)
    log.append("T")
    log.append("T", queue_offset=5)
    catch_up(store, log)
    assert store.bounds("T", 0, 0) == (0, 6)
    assert [offset for offset, _ in store.read_units("T", 0, 0, 100)] == [0, 5]


def test_of_two_records_for_one_place_the_first_keeps_it(tmp_path: Path) -> None:
    log = DispatchLog()
    store = open_store(tmp_path, log)
    first = log.append("T")
    log.append("T", queue_offset=0)
    last = log.append("T", queue_offset=1)
    for _ in range(2):  # a replay changes nothing
        catch_up(store, log)
        units = store.read_units("T", 0, 0, 100)
        places = [unit.physical_offset for _, unit in units]
        assert places == [first.physical_offset, last.physical_offset]
        store.close()
        store = open_store(tmp_path, log)


def test_expired_records_are_no_hits(tmp_path: Path) -> None:
    log = filled(60)
    store = open_store(tmp_path, log)
    catch_up(store, log)
    log.drop(log.requests[30].physical_offset)
    assert hits(store, "T0", "u2") == []
    assert hits(store, "T0", "u40") == [log.requests[10].physical_offset]


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


@pytest.mark.parametrize("max_open_files", [100, 100_000])
def test_600_queues_need_no_600_files(tmp_path: Path, max_open_files: int) -> None:
    """The second limit is above what the process may open: handles are given back then."""
    command = [sys.executable, "-c", _MANY_QUEUES, str(tmp_path), str(max_open_files)]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sum(1 for _ in tmp_path.glob("consumequeue/*/*/*")) == 600
