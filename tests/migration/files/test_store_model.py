"""The store over files against a plain list of records, with kills and power losses in between."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from migration.files.options import FileQueueOptions
from migration.files.store import FileQueueStore
from migration.formats.index import IndexLayout
from migration.formats.unit import UNIT_SIZE
from tests.support.dispatch_log import DispatchLog

if TYPE_CHECKING:
    from store.consume_queue import DispatchRequest

OPTIONS = FileQueueOptions(
    units_per_file=4, index=IndexLayout(slots=3, entries=7), max_open_files=4, max_cached_queues=2
)
TOPICS = ["A", "B"]
LIGHT = ["%LMQ%x", "%LMQ%y"]
FOREVER = 1 << 62


class StoreMachine(RuleBasedStateMachine):
    """The log is durable here; what is derived from it may be lost, never wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.log = DispatchLog()
        self.dead: dict[str, int] = {}
        self.time = 1_700_000_000_000
        self.store = self.open()

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.root)

    def open(self) -> FileQueueStore:
        (self.root / "live").mkdir(exist_ok=True)
        return FileQueueStore(
            self.root / "live",
            store_time_ms=self.log.store_time_ms,
            record_at=self.log.record_at,
            options=OPTIONS,
        )

    def catch_up(self) -> None:
        """Dispatch from the watermark on, as recovery does; deleted topics stay deleted."""
        again = self.log.since(max(self.store.dispatched_offset, self.log.start))
        self.store.dispatch(again, self.log.end)

    @rule(
        puts=st.lists(
            st.tuples(
                st.sampled_from(TOPICS),
                st.integers(0, 1),
                st.lists(st.sampled_from(LIGHT), unique=True, max_size=2),
                st.lists(st.sampled_from(["k", "l", "m"]), unique=True, max_size=3),
                st.integers(0, 1500),
            ),
            min_size=1,
            max_size=6,
        )
    )
    def put(self, puts: list[tuple[str, int, list[str], list[str], int]]) -> None:
        for topic, queue_id, light, keys, later in puts:
            self.time += later
            self.log.append(
                topic, queue_id, time_ms=self.time, keys=tuple(keys), light=tuple(light)
            )
        self.catch_up()

    @rule()
    def flush(self) -> None:
        self.store.flush()
        assert self.store.durable_offset == self.log.end

    @rule()
    def close_and_open(self) -> None:
        self.store.close()
        self.store = self.open()
        assert self.store.dispatched_offset == self.log.end

    @rule()
    def kill(self) -> None:
        shutil.copytree(self.root / "live", self.root / "left")
        durable = self.store.durable_offset
        self.store.close()
        shutil.rmtree(self.root / "live")
        (self.root / "left").rename(self.root / "live")
        self.store = self.open()
        assert self.store.dispatched_offset == durable
        self.catch_up()

    @precondition(lambda self: self.store.durable_offset < self.log.end)
    @rule(data=st.data())
    def lose_power(self, data: st.DataObject) -> None:
        """Units above the durable offset are kept or zeroed, each by itself, in every queue."""
        durable = self.store.durable_offset
        shutil.copytree(self.root / "live", self.root / "left")
        self.store.close()
        shutil.rmtree(self.root / "live")
        for path in sorted((self.root / "left" / "consumequeue").rglob("0*")):
            if not path.is_file():
                continue
            image = bytearray(path.read_bytes())
            for at in range(0, len(image), UNIT_SIZE):
                young = int.from_bytes(image[at : at + 8], "big") >= durable
                if young and data.draw(st.booleans()):
                    image[at : at + UNIT_SIZE] = bytes(UNIT_SIZE)
            path.write_bytes(image)
        (self.root / "left").rename(self.root / "live")
        self.store = self.open()
        assert self.store.dispatched_offset == durable
        self.catch_up()

    @rule(at=st.floats(0, 1))
    def truncate(self, at: float) -> None:
        ends = [each.physical_offset for each in self.log.requests] + [self.log.end]
        end = ends[int(at * (len(ends) - 1))]
        if any(end <= below for below in self.dead.values()):
            return  # what ended would live again: see test_store_removal
        self.store.truncate(end)
        self.log.truncate(end)
        assert self.store.dispatched_offset == end

    @rule(at=st.floats(0, 1))
    def expire(self, at: float) -> None:
        starts = [each.physical_offset for each in self.log.requests] + [self.log.end]
        self.log.drop(starts[int(at * (len(starts) - 1))])
        self.store.expire(self.log.start, self.time)

    @rule(topic=st.sampled_from(TOPICS + LIGHT))
    def delete(self, topic: str) -> None:
        self.store.delete_topic(topic, self.log.end)
        self.dead[topic] = self.log.end
        for queue_id in (0, 1):
            self.log.forget_queue(topic, queue_id)

    def alive(self) -> list[DispatchRequest]:
        return [
            each
            for each in self.log.requests
            if each.physical_offset >= self.dead.get(each.topic, 0)
        ]

    @invariant()
    def queues_are_those_of_the_log(self) -> None:
        expected: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for each in self.alive():
            row = (each.queue_offset, each.physical_offset)
            expected.setdefault((each.topic, each.queue_id), []).append(row)
        for each in self.log.requests:
            for name, offset in each.light_queues:
                if each.physical_offset >= self.dead.get(name, 0):
                    expected.setdefault((name, 0), []).append((offset, each.physical_offset))
        for topic in TOPICS + LIGHT:
            for queue_id in (0, 1):
                rows = expected.get((topic, queue_id), [])
                low, high = self.store.bounds(topic, queue_id, self.log.start)
                assert high == self.log.next_offset(topic, queue_id)
                assert (low, high) == ((rows[0][0], rows[-1][0] + 1) if rows else (high, high))
                found = self.store.read_units(topic, queue_id, low, high - low)
                assert [(at, unit.physical_offset) for at, unit in found] == rows

    @invariant()
    def keys_are_those_of_the_log(self) -> None:
        for topic in TOPICS:
            for key in ("k", "l", "m"):
                found = self.store.query_key(topic, key, 0, FOREVER, None, 1000)
                assert [hit.physical_offset for hit in found] == [
                    each.physical_offset
                    for each in self.alive()
                    if each.topic == topic and key in each.keys
                ]


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
