"""What every ConsumeQueueStore promises: in RocksDB, in files, and in both behind one dispatch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

import pytest

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import DERIVED
from migration.files.options import FileQueueOptions
from migration.files.store import FileQueueStore
from migration.formats.index import IndexLayout
from migration.sides.double import DoubleQueueStore
from migration.state import Phase, SideName
from store.consume_queue import Boundary, KeyHit, LastUnit
from tests.support.dispatch_log import DispatchLog, expected, seen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from migration.sides.side import SideStore
    from store.consume_queue import ConsumeQueueStore

#: Small, so that a queue and the index have several files.
OPTIONS = FileQueueOptions(units_per_file=8, index=IndexLayout(slots=5, entries=12))
FOREVER = 1 << 62
TIME_MS = 1_700_000_000_000


class NoAttendant:
    """Both sides are complete, and neither fails."""

    def side_stopped(self, name: SideName, error: BaseException) -> None:
        raise AssertionError(f"{name} failed") from error

    def look(self) -> None:
        pass

    def close(self) -> None:
        pass


def in_rocksdb(root: Path, _log: DispatchLog) -> KvConsumeQueueStore:
    return KvConsumeQueueStore(RocksEngine.open(root / "kvcq", DERIVED))


def in_files(root: Path, log: DispatchLog) -> FileQueueStore:
    return FileQueueStore(
        root, store_time_ms=log.store_time_ms, record_at=log.record_at, options=OPTIONS
    )


def in_both(phase: Phase) -> Callable[[Path, DispatchLog], DoubleQueueStore]:
    def open_double(root: Path, log: DispatchLog) -> DoubleQueueStore:
        sides: dict[SideName, SideStore] = {
            # Nothing fills this side here: that it could not is no matter.
            SideName.FILES: cast("SideStore", in_files(root, log)),
            SideName.ROCKSDB: in_rocksdb(root, log),
        }
        return DoubleQueueStore(phase, sides, NoAttendant())

    return open_double


KINDS: dict[str, Callable[[Path, DispatchLog], ConsumeQueueStore]] = {
    "RocksDB": in_rocksdb,
    "files": in_files,
    "both, files read": in_both(Phase.DOUBLE_WRITE),
    "both, RocksDB read": in_both(Phase.ROCKSDB),
}


class Opened(NamedTuple):
    """A store, and the log that it is derived from."""

    store: ConsumeQueueStore
    log: DispatchLog
    again: Callable[[], ConsumeQueueStore]

    def now_and_again(self) -> Iterator[ConsumeQueueStore]:
        """The store; then it is closed and opened again."""
        yield self.store
        yield self.again()

    def catch_up(self) -> None:
        self.store.dispatch(self.log.since(self.store.dispatched_offset), self.log.end)

    def hits(self, topic: str, key: str) -> list[int]:
        found = self.store.query_key(topic, key, 0, FOREVER, None, 1000)
        return [hit.physical_offset for hit in found]


@pytest.fixture(params=KINDS, ids=str)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    log = DispatchLog()
    open_store = KINDS[request.param]
    stores = [open_store(tmp_path, log)]

    def again() -> ConsumeQueueStore:
        stores[-1].close()
        stores.append(open_store(tmp_path, log))
        return stores[-1]

    yield Opened(stores[0], log, again)
    stores[-1].close()


@pytest.fixture
def filled(opened: Opened) -> Opened:
    """Forty messages over two topics of three queues, some of them in two light queues."""
    for n in range(40):
        light = ("%LMQ%a", "%LMQ%b") if n % 3 == 0 else ()
        opened.log.append(
            f"T{n % 2}",
            n % 3,
            time_ms=TIME_MS + 300 * n,
            size=100 + n,
            keys=(f"u{n}", f"k{n % 4}"),
            light=light,
        )
    opened.catch_up()
    return opened


def test_all_that_was_dispatched_is_read_also_when_opened_again(filled: Opened) -> None:
    for store in filled.now_and_again():
        assert seen(store, filled.log) == expected(filled.log)
        assert store.dispatched_offset == filled.log.end
        assert store.queue_ids("T0") == [0, 1, 2]
        queues = [("T0", 0), ("T0", 1), ("%LMQ%a", 0), ("none", 0)]
        assert store.next_offsets(queues) == [7, 6, 14, 0]


def test_a_queue_that_is_not_there_is_empty(opened: Opened) -> None:
    assert opened.store.bounds("none", 3, 0) == (0, 0)
    assert opened.store.read_units("none", 0, 0, 10) == []
    assert opened.store.queue_ids("none") == []
    for boundary in Boundary:
        assert opened.store.search_time("none", 0, 5, boundary, 0) == 0


def test_repeating_a_dispatch_changes_nothing(filled: Opened) -> None:
    filled.store.dispatch(filled.log.requests[5:30], filled.log.requests[30].physical_offset)
    assert filled.store.dispatched_offset == filled.log.end
    filled.log.append("T0", keys=("u1",))
    filled.store.dispatch(filled.log.requests[20:], filled.log.end)
    assert seen(filled.store, filled.log) == expected(filled.log)
    assert filled.hits("T0", "u2") == [filled.log.requests[2].physical_offset]


def test_units_are_read_from_an_offset_on(filled: Opened) -> None:
    (_, units) = expected(filled.log)["T0", 2]
    assert filled.store.read_units("T0", 2, 3, 2) == units[3:5]
    assert filled.store.read_units("T0", 2, 100, 2) == []


def test_a_prepared_message_stands_in_no_queue_but_in_the_index(opened: Opened) -> None:
    request = opened.log.append("T", keys=("k",))._replace(in_queue=False)
    opened.store.dispatch([request], opened.log.end)
    assert opened.store.bounds("T", 0, 0) == (0, 0)
    assert opened.hits("T", "k") == [0]


def test_min_is_the_first_unit_that_the_log_has(opened: Opened) -> None:
    for _ in range(6):
        opened.log.append("T")
    opened.catch_up()
    for log_start, low in ((0, 0), (300, 3), (301, 4), (600, 6)):
        assert opened.store.bounds("T", 0, log_start) == (low, 6)


# --- searches ----------------------------------------------------------------------------------


def test_a_search_by_time_has_the_whole_boundary_table(opened: Opened) -> None:
    for at in (100, 100, 100, 300, 300):
        opened.log.append("T", time_ms=at)
    opened.catch_up()
    found = [
        (time, *(opened.store.search_time("T", 0, time, one, 0) for one in Boundary))
        for time in (50, 100, 200, 300, 400)
    ]
    assert found == [(50, 0, 0), (100, 0, 2), (200, 3, 2), (300, 3, 4), (400, 5, 4)]


def test_a_search_by_time_stays_inside_min_and_max(opened: Opened) -> None:
    for n in range(30):
        opened.log.append("T", time_ms=1000 + 10 * n)
    opened.catch_up()
    opened.log.drop(1000)
    start = opened.log.start
    assert opened.store.search_time("T", 0, 1000, Boundary.LOWER, start) == 10
    assert opened.store.search_time("T", 0, 1000, Boundary.UPPER, start) == 10
    assert opened.store.search_time("T", 0, 1205, Boundary.LOWER, start) == 21
    assert opened.store.search_time("T", 0, 1205, Boundary.UPPER, start) == 20
    for boundary in Boundary:
        assert opened.store.search_time("T", 0, 5, boundary, opened.log.end) == 30


def test_a_query_finds_what_a_search_through_the_log_would(filled: Opened) -> None:
    times = [each.store_time_ms for each in filled.log.requests]
    for begin in (times[0], times[7], times[7] + 1, times[30]):
        for end in (times[7], times[30] - 1, times[30], times[-1]):
            for key in ("k0", "k3", "u7", "none"):
                found = filled.store.query_key("T1", key, begin, end, None, 1000)
                assert found == [
                    KeyHit(each.store_time_ms, each.physical_offset)
                    for each in filled.log.requests
                    if each.topic == "T1" and key in each.keys
                    if begin <= each.store_time_ms <= end
                ]


def test_keys_and_topics_of_one_hash_do_not_mix(opened: Opened) -> None:
    # Java hashes of the first three, topic included, are equal.
    for topic, key in (("AaTopic", "Aa"), ("AaTopic", "BB"), ("BBTopic", "BB")):
        opened.log.append(topic, keys=(key,))
    opened.catch_up()
    assert opened.hits("AaTopic", "Aa") == [0]
    assert opened.hits("AaTopic", "BB") == [100]
    assert opened.hits("BBTopic", "BB") == [200]
    assert opened.hits("BBTopic", "Aa") == []


def test_paging_by_key_misses_and_repeats_nothing(filled: Opened) -> None:
    pages: list[KeyHit] = []
    after = None
    while page := filled.store.query_key("T0", "k2", 0, FOREVER, after, 3):
        pages += page
        after = page[-1]
    assert [hit.physical_offset for hit in pages] == filled.hits("T0", "k2")
    assert len(pages) == 10


def test_names_are_listed_by_length_then_bytes_in_pages(opened: Opened) -> None:
    for name in ("%LMQ%b", "%LMQ%a", "%LMQ%ab", "%LMQ%ccc", "%LMQ%cc", "other"):
        opened.log.append(name)
    opened.catch_up()
    names = ["%LMQ%a", "%LMQ%b", "%LMQ%ab", "%LMQ%cc", "%LMQ%ccc"]
    assert opened.store.list_names("%LMQ%", None, 100) == names
    found: list[str] = []
    after: str | None = None
    while page := opened.store.list_names("%LMQ%", after, 2):
        found += page
        after = page[-1]
    assert found == names
    assert opened.store.list_names("%LMQ%c", None, 100) == ["%LMQ%cc", "%LMQ%ccc"]


# --- ends --------------------------------------------------------------------------------------


def test_a_queue_goes_on_behind_a_restored_end(filled: Opened) -> None:
    units = [LastUnit("T0", 0, 3, 5), LastUnit("new", 0, 4, 5), LastUnit("T1", 7, 9, 6)]
    for _ in range(2):
        filled.store.restore_last_units(units)
    for store in filled.now_and_again():
        assert store.next_offsets([("T0", 0), ("new", 0), ("T1", 7)]) == [7, 5, 10]
        assert store.bounds("new", 0, 100) == (5, 5)
        assert store.bounds("T0", 0, 0) == (0, 7)


def test_a_queue_with_units_goes_on_behind_a_restored_end(filled: Opened) -> None:
    """The log has dropped all that was between them."""
    log = filled.log
    for _ in range(2):
        filled.store.restore_last_units([LastUnit("T0", 0, 9, log.end)])
    for store in filled.now_and_again():
        assert store.next_offsets([("T0", 0)]) == [10]
        assert store.bounds("T0", 0, log.end + 1) == (10, 10)


# --- removal -----------------------------------------------------------------------------------


def test_a_deleted_topic_is_gone_and_others_stay(filled: Opened) -> None:
    filled.store.delete_topic("T0", filled.log.end)
    for store in filled.now_and_again():
        assert store.queue_ids("T0") == []
        assert store.bounds("T0", 0, 0) == (0, 0)
        assert store.query_key("T0", "k0", 0, FOREVER, None, 9) == []
        assert store.next_offsets([("T0", 0), ("T1", 0), ("%LMQ%a", 0)]) == [0, 7, 14]
        assert len(store.query_key("T1", "k1", 0, FOREVER, None, 100)) == 10


def test_a_deletion_that_was_done_is_not_done_again(filled: Opened) -> None:
    """As a replay has it, whose log goes on behind the record that ended the topic."""
    before = filled.store.bounds("T0", 0, 0)
    filled.store.delete_topic("T0", filled.log.requests[-1].physical_offset)
    assert filled.store.bounds("T0", 0, 0) == before != (0, 0)


def test_a_topic_that_is_made_again_begins_at_0(filled: Opened) -> None:
    filled.store.delete_topic("T0", filled.log.end)
    fresh = filled.log.append("T0", 0, keys=("k0",), queue_offset=0)
    filled.catch_up()
    assert filled.store.bounds("T0", 0, 0) == (0, 1)
    assert filled.hits("T0", "k0") == [fresh.physical_offset]
    assert [unit.physical_offset for _, unit in filled.store.read_units("T0", 0, 0, 9)] == [
        fresh.physical_offset
    ]


def test_expiry_moves_min_and_offsets_go_on(opened: Opened) -> None:
    log = opened.log
    for _ in range(40):
        log.append("busy")
    idle = log.append("idle")
    for _ in range(10):
        log.append("busy")
    opened.catch_up()
    log.drop(idle.physical_offset + 500)
    opened.store.expire(log.start, idle.store_time_ms)
    opened.store.compact()
    assert opened.store.bounds("busy", 0, log.start) == (44, 50)
    assert opened.store.bounds("idle", 0, log.start) == (1, 1)
    log.append("idle")
    opened.catch_up()
    for store in opened.now_and_again():
        assert store.bounds("idle", 0, log.start) == (1, 2)
        assert store.next_offsets([("idle", 0), ("busy", 0)]) == [2, 50]


# --- end of life -------------------------------------------------------------------------------


def test_what_a_maintenance_does_changes_nothing_for_readers(filled: Opened) -> None:
    filled.store.flush()
    assert filled.store.maintain() == 0
    filled.store.compact()
    assert seen(filled.store, filled.log) == expected(filled.log)
    assert filled.store.statistics()


def test_closing_is_repeatable(opened: Opened) -> None:
    opened.store.close()
    opened.store.close()
