"""What every KvEngine promises, run on the one in memory and on RocksDB alike."""

from __future__ import annotations

import shutil
import struct
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvcq.engine.protocol import KvBatch, KvEngine
from kvcq.engine.rocks import RocksEngine, write_sst
from kvcq.engine.rocks.options import DERIVED, FamilyProfile
from kvcq.errors import EngineClosedError, EngineFailedError
from store.errors import InvalidArgumentError
from tests.support.memory_engine import MemoryEngine, write_sorted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kvcq.engine.protocol import Pair

FAMILIES = DERIVED.names
ALL = (b"", b"\xff" * 8)  # more than any key here


class Engine(KvEngine, Protocol):
    """The protocol and the filter: what the twins have in common."""

    def arm(self, ttl_s: int | None) -> None: ...


class Kind:
    """How to get engines of one kind, and files for them."""

    def __init__(
        self,
        name: str,
        open_engine: Callable[[Path], Engine],
        write_file: Callable[[Path, Iterable[Pair]], object],
    ) -> None:
        self.name = name
        self.open_engine = open_engine
        self.write_file = write_file


MEMORY = Kind(
    "memory",
    lambda _: MemoryEngine(FAMILIES, filtered=("default", "index")),
    write_sorted,
)
ROCKS = Kind(
    "rocks",
    lambda path: RocksEngine.open(path, DERIVED),
    lambda path, rows: write_sst(path, rows, FamilyProfile(name="default")),
)


@pytest.fixture(params=[MEMORY, ROCKS], ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


@pytest.fixture
def engine(kind: Kind, tmp_path: Path) -> Iterator[Engine]:
    opened = kind.open_engine(tmp_path / "kv")
    yield opened
    opened.close()


def put(engine: KvEngine, family: str, *rows: Pair) -> None:
    engine.write(KvBatch(puts={family: list(rows)}))


def test_what_is_written_is_read(engine: Engine) -> None:
    put(engine, "default", (b"b", b"2"), (b"a", b"1"), (b"c", b""))
    assert engine.get("default", b"a") == b"1"
    assert engine.get("default", b"c") == b""
    assert engine.get("default", b"d") is None
    assert engine.multi_get("default", [b"c", b"x", b"a", b"a"]) == [b"", None, b"1", b"1"]
    assert engine.multi_get("default", [b"a", b"c", b"x"]) == [b"1", b"", None]
    assert engine.multi_get("default", []) == []


def test_families_are_apart(engine: Engine) -> None:
    put(engine, "default", (b"k", b"unit"))
    put(engine, "index", (b"k", b"hit"))
    assert [engine.get(name, b"k") for name in FAMILIES] == [b"unit", None, b"hit", None]


def test_scan_takes_start_and_leaves_end(engine: Engine) -> None:
    rows = [(bytes([key]), b"v%d" % key) for key in (0, 1, 2, 254, 255)]
    put(engine, "default", *rows)
    assert engine.scan("default", b"\x01", b"\xfe") == rows[1:3]
    assert engine.scan("default", b"\x01", b"\xfe\x00") == rows[1:4]
    assert engine.scan("default", *ALL) == rows
    assert engine.scan("default", b"\x03", b"\xfe") == []
    assert engine.scan("default", b"\x02", b"\x02") == []
    assert engine.scan("default", b"\x02", b"\x01") == []


def test_scan_stops_at_its_limit_from_either_side(engine: Engine) -> None:
    rows = [(bytes([key]), b"") for key in range(10)]
    put(engine, "default", *rows)
    for limit in range(13):
        assert engine.scan("default", b"\x02", b"\x08", limit=limit) == rows[2:8][:limit]
        falling = engine.scan("default", b"\x02", b"\x08", limit=limit, reverse=True)
        assert falling == rows[2:8][::-1][:limit]
        assert (
            engine.scan("default", b"\x02", b"\x08", limit=limit, fill_cache=False)
            == (rows[2:8][:limit])
        )


def test_a_batch_deletes_ranges_then_keys_then_puts(engine: Engine) -> None:
    put(engine, "default", *((bytes([key]), b"old") for key in range(6)))
    batch = KvBatch()
    batch.put("default", b"\x02", b"new")
    batch.put("default", b"\x05", b"new")
    batch.put("default", b"\x02", b"last")
    batch.deletes.append(("default", b"\x05"))
    batch.deletes.append(("default", b"\x00"))
    batch.deletes.append(("default", b"nothing there"))
    batch.delete_ranges.append(("default", b"\x01", b"\x04"))
    batch.delete_ranges.append(("default", b"\x05", b"\x03"))  # empty
    engine.write(batch)
    assert engine.scan("default", *ALL) == [
        (b"\x02", b"last"),
        (b"\x04", b"old"),
        (b"\x05", b"new"),
    ]


def test_a_copy_does_not_change_with_what_is_written_later(engine: Engine) -> None:
    put(engine, "default", (b"a", b"1"))
    before = engine.back_up()
    other = engine.back_up()
    try:
        assert before != other
        files = {path.name: path.read_bytes() for path in before.iterdir() if path.is_file()}
        assert any(b"1" in data for data in files.values())
        put(engine, "default", (b"a", b"2"), (b"b", b"3"))
        engine.flush()
        engine.compact("default")
        assert {p.name: p.read_bytes() for p in before.iterdir() if p.is_file()} == files
    finally:
        shutil.rmtree(before)
        shutil.rmtree(other)


def test_a_batch_is_left_as_it_was(engine: Engine) -> None:
    batch = KvBatch(puts={"default": [(b"a", b"1")]}, deletes=[("offset", b"b")])
    engine.write(batch)
    assert batch == KvBatch(puts={"default": [(b"a", b"1")]}, deletes=[("offset", b"b")])


def test_a_batch_for_an_unknown_family_writes_nothing(engine: Engine) -> None:
    batch = KvBatch(puts={"default": [(b"a", b"1")], "no such": [(b"a", b"1")]})
    with pytest.raises(EngineFailedError, match="no such"):
        engine.write(batch)
    assert engine.scan("default", *ALL) == []
    for call in (
        lambda: engine.get("no such", b"a"),
        lambda: engine.multi_get("no such", [b"a"]),
        lambda: engine.scan("no such", *ALL),
        lambda: engine.compact("no such"),
    ):
        with pytest.raises(EngineFailedError, match="no such"):
            call()


def test_compaction_keeps_the_rows_and_tells_its_progress(engine: Engine) -> None:
    put(engine, "default", *((bytes([key]), b"v") for key in range(20)))
    batch = KvBatch(delete_ranges=[("default", b"\x05", b"\x0a")])
    engine.write(batch)
    seen: list[float] = []
    engine.compact("default", b"\x02", b"\x12", seen.append)
    engine.compact("default")
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert [key[0] for key, _ in engine.scan("default", *ALL)] == [*range(5), *range(10, 20)]


def test_files_come_in_and_win(engine: Engine, kind: Kind, tmp_path: Path) -> None:
    put(engine, "default", (b"a", b"before"), (b"b", b"before"))
    first, second = tmp_path / "1.sst", tmp_path / "2.sst"
    assert kind.write_file(first, [(b"b", b"file"), (b"c", b"file")])
    assert kind.write_file(second, iter([(b"d", b"file")]))
    engine.ingest("default", [first, second], move=False)
    put(engine, "default", (b"c", b"after"))
    assert [value for _, value in engine.scan("default", *ALL)] == [
        b"before",
        b"file",
        b"after",
        b"file",
    ]
    assert first.exists()
    engine.ingest("index", [second], move=True)
    assert not second.exists()
    assert engine.get("index", b"d") == b"file"
    engine.ingest("index", [], move=True)
    with pytest.raises(EngineFailedError):
        engine.ingest("default", [tmp_path / "none.sst"], move=False)


def test_a_file_of_no_rows_is_none_and_keys_must_rise(kind: Kind, tmp_path: Path) -> None:
    path = tmp_path / "f.sst"
    assert kind.write_file(path, iter(())) is None
    for rows in ([(b"b", b""), (b"a", b"")], [(b"a", b""), (b"a", b"")]):
        with pytest.raises(InvalidArgumentError, match="is not above the one before"):
            kind.write_file(path, rows)
        assert not path.exists()


def test_an_armed_filter_drops_old_stamps_in_its_families_only(engine: Engine) -> None:
    now_s = int(time.time())
    rows = {
        b"dead": bytes(28) + struct.pack("<i", now_s - 2000),
        b"live": bytes(28) + struct.pack("<i", now_s - 500),
        b"next": bytes(28) + struct.pack("<i", now_s + 2000),
    }
    for family in FAMILIES:
        put(engine, family, *rows.items())
    engine.flush()
    engine.compact("default")
    assert dict(engine.scan("default", *ALL)) == rows
    engine.arm(1000)
    for family in FAMILIES:
        engine.compact(family)
    live = {key: value for key, value in rows.items() if key != b"dead"}
    assert dict(engine.scan("default", *ALL)) == live
    assert dict(engine.scan("index", *ALL)) == live
    assert dict(engine.scan("offset", *ALL)) == rows
    engine.arm(None)
    put(engine, "default", (b"dead", rows[b"dead"]))
    engine.compact("default")
    assert dict(engine.scan("default", *ALL)) == rows


def test_statistics_are_numbers_by_name(engine: Engine) -> None:
    put(engine, "default", (b"a", b"1"), (b"b", b"2"))
    assert engine.statistics()["default.estimated_keys"] == 2.0


def test_after_close_every_call_is_refused(engine: Engine, tmp_path: Path) -> None:
    put(engine, "default", (b"a", b"1"))
    engine.close()
    engine.close()
    calls: list[Callable[[], object]] = [
        lambda: engine.get("default", b"a"),
        lambda: engine.multi_get("default", [b"a"]),
        lambda: engine.scan("default", *ALL),
        lambda: engine.write(KvBatch()),
        engine.flush,
        lambda: engine.compact("default"),
        lambda: engine.ingest("default", [tmp_path / "x"], move=False),
        lambda: engine.arm(5),
        engine.statistics,
    ]
    for call in calls:
        with pytest.raises(EngineClosedError):
            call()


def test_close_under_load_lets_calls_end_and_refuses_the_next(engine: Engine) -> None:
    under_way = threading.Barrier(4)
    ends: list[BaseException] = []

    def work(name: bytes) -> None:
        try:
            under_way.wait()
            for number in range(1_000_000):
                key = b"%s%06d" % (name, number)
                put(engine, "default", (key, name))
                assert engine.get("default", key) == name
                assert engine.scan("default", key, key + b"\0") == [(key, name)]
        except BaseException as error:  # noqa: BLE001  (looked at below)
            ends.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    under_way.wait()
    engine.flush()
    engine.close()
    for thread in threads:
        thread.join()
    assert [type(error) for error in ends] == [EngineClosedError] * 3


# --- any order of calls, against a dict -------------------------------------------------------

keys = st.lists(st.sampled_from(b"\x00\x01\x7f\xfe\xff"), min_size=1, max_size=3).map(bytes)
values = st.binary(max_size=6)
families = st.sampled_from(FAMILIES)
rows_in = st.lists(st.tuples(families, keys, values), max_size=12)


class EngineMachine(RuleBasedStateMachine):
    """Every family beside a plain dict."""

    kind: Kind

    @initialize()
    def start(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="kvcq-contract-"))
        self.engine = self.kind.open_engine(self.root / "kv")
        self.model: dict[str, dict[bytes, bytes]] = {name: {} for name in FAMILIES}
        self.files = 0

    def teardown(self) -> None:
        self.engine.close()
        shutil.rmtree(self.root)

    @rule(
        puts=rows_in,
        deletes=st.lists(st.tuples(families, keys), max_size=3),
        ranges=st.lists(st.tuples(families, keys, keys), max_size=2),
    )
    def write(
        self,
        puts: list[tuple[str, bytes, bytes]],
        deletes: list[tuple[str, bytes]],
        ranges: list[tuple[str, bytes, bytes]],
    ) -> None:
        batch = KvBatch(deletes=deletes, delete_ranges=ranges)
        for family, key, value in puts:
            batch.put(family, key, value)
        self.engine.write(batch)
        for family, start, end in ranges:
            rows = self.model[family]
            for key in [key for key in rows if start <= key < end]:
                del rows[key]
        for family, key in deletes:
            self.model[family].pop(key, None)
        for family, key, value in puts:
            self.model[family][key] = value

    @rule(family=families, rows=st.dictionaries(keys, values, min_size=1, max_size=5))
    def ingest(self, family: str, rows: dict[bytes, bytes]) -> None:
        self.files += 1
        path = self.root / f"{self.files}.sst"
        self.kind.write_file(path, sorted(rows.items()))
        self.engine.ingest(family, [path], move=True)
        self.model[family].update(rows)

    @rule()
    def flush(self) -> None:
        self.engine.flush()

    @rule()
    def settle(self) -> None:
        self.engine.settle()

    @rule(family=families, start=st.none() | keys, end=st.none() | keys)
    def compact(self, family: str, start: bytes | None, end: bytes | None) -> None:
        if start is None or end is None or start < end:
            self.engine.compact(family, start, end)

    @rule(ttl_s=st.none() | st.just(2**31 - 1))
    def arm(self, ttl_s: int | None) -> None:
        self.engine.arm(ttl_s)  # a ttl this long drops nothing before 2038

    @precondition(lambda self: self.kind is ROCKS)
    @rule()
    def reopen(self) -> None:
        self.engine.close()
        self.engine = self.kind.open_engine(self.root / "kv")

    @rule(
        family=families,
        start=keys,
        end=keys,
        limit=st.none() | st.integers(0, 4),
        reverse=st.booleans(),
    )
    def scan(self, family: str, start: bytes, end: bytes, limit: int | None, reverse: bool) -> None:
        rows = sorted((k, v) for k, v in self.model[family].items() if start <= k < end)
        if reverse:
            rows.reverse()
        found = self.engine.scan(family, start, end, limit=limit, reverse=reverse)
        assert found == rows[:limit]

    @rule(family=families, asked=st.lists(keys, max_size=5))
    def multi_get(self, family: str, asked: list[bytes]) -> None:
        expected = [self.model[family].get(key) for key in asked]
        assert self.engine.multi_get(family, asked) == expected
        assert [self.engine.get(family, key) for key in asked] == expected

    @invariant()
    def equal(self) -> None:
        for family, rows in self.model.items():
            assert self.engine.scan(family, *ALL) == sorted(rows.items())


class MemoryMachine(EngineMachine):
    kind = MEMORY


class RocksMachine(EngineMachine):
    kind = ROCKS


TestMemoryMachine = MemoryMachine.TestCase
TestMemoryMachine.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
TestRocksMachine = RocksMachine.TestCase
TestRocksMachine.settings = settings(
    max_examples=12,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
