"""What a state record says is in the rows before what lies behind it is dispatched."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.state_store import KvStateStore
from kvcq.tables.keys import FAMILIES, STATE
from store.consume_queue import DispatchRequest
from store.derive.state_applier import _MOST_RECENT, StateApplier
from store.errors import StoreBusyError
from store.message import Message
from store.metadata import KEEP_ALL
from store.state import STATE_TOPIC, Tables, TopicEnded, TopicsMade, changes_of, pack_entries
from tests.support.log_writer import Entry, LogWriter
from tests.support.memory_engine import MemoryEngine
from tests.support.stores import open_small
from tests.support.tree import copy_open

if TYPE_CHECKING:
    from store.log import CommitLog
    from store.state import Changes
    from store.state import Entry as StateEntry

SIZE = 100


class Harness:
    """A log of requests; bodies of state records are read by their place."""

    def __init__(self) -> None:
        engine = MemoryEngine((*FAMILIES, STATE))
        self.state = KvStateStore(engine)
        self.queues = KvConsumeQueueStore(engine)
        self.bodies: dict[int, bytes] = {}
        self.reads = 0
        log = cast("CommitLog", SimpleNamespace(read=self._read))
        self.applier = StateApplier(log, self.state, self.queues)
        self.requests: list[DispatchRequest] = []
        self.dispatched: list[list[DispatchRequest]] = []

    def _read(self, at: int, _size: int) -> bytes:
        self.reads += 1
        writer = LogWriter(Path(tempfile.gettempdir()), 1 << 20)  # writes no file
        return writer.append(Entry(STATE_TOPIC, self.bodies[at])).record

    def add(self, *entries: StateEntry, topic: str = STATE_TOPIC) -> int:
        at = len(self.requests) * SIZE
        if entries:
            ((_, self.bodies[at]),) = pack_entries(entries)
        number = sum(each.topic == topic for each in self.requests)
        self.requests.append(DispatchRequest(topic, 0, number, at, SIZE, 0, 7, (), (), True))
        return at

    def run(self) -> None:
        """Dispatch all, as reput does."""
        end = len(self.requests) * SIZE
        for piece, piece_end in self.applier.pieces(self.requests, end):
            self.dispatched.append([*piece])
            self.queues.dispatch(piece, piece_end)


@pytest.fixture
def harness() -> Harness:
    return Harness()


def made(name: str) -> TopicsMade:
    return TopicsMade((name,), 1, 5, KEEP_ALL)


def test_a_record_is_in_the_rows_when_its_piece_comes(harness: Harness) -> None:
    harness.add(topic="A")
    harness.add(made("T"), made("U"))
    harness.add(topic="T")
    harness.add(TopicEnded("T"))
    harness.add(topic="U")
    known: list[list[str]] = []
    for piece, end in harness.applier.pieces(harness.requests, 5 * SIZE):
        known.append([topic.name for topic in Tables(harness.state).every_topic()])
        harness.dispatched.append([*piece])
        harness.queues.dispatch(piece, end)
    assert known == [[], ["T", "U"], ["U"]]
    assert [*chain(*harness.dispatched)] == harness.requests
    assert [len(piece) for piece in harness.dispatched] == [1, 2, 2]
    assert harness.queues.queue_ids("T") == []
    assert harness.queues.queue_ids("U") == [0]


@given(st.lists(st.sampled_from(["A", "B", STATE_TOPIC]), max_size=12))
def test_pieces_are_the_requests_whatever_the_order(topics: list[str]) -> None:
    harness = Harness()
    for number, topic in enumerate(topics):
        if topic == STATE_TOPIC:
            harness.add(made(f"T{number}"))
        else:
            harness.add(topic=topic)
    harness.run()
    assert [*chain(*harness.dispatched)] == harness.requests
    assert all(
        STATE_TOPIC not in [each.topic for each in piece[1:]] for piece in harness.dispatched
    )
    assert harness.queues.dispatched_offset == len(topics) * SIZE


def test_what_was_appended_just_now_is_not_read_back(harness: Harness) -> None:
    at = harness.add(made("T"))
    harness.applier.appended(at, changes_of([made("T")], at, harness.state))
    harness.add(made("U"))
    harness.run()
    assert harness.reads == 1
    assert not harness.applier._recent
    for number in range(1000):
        harness.applier.appended(1_000_000 + number, changes_of([], 0, harness.state))
    assert len(harness.applier._recent) < 1000


def test_a_state_ahead_of_the_queues_is_left_as_it_is(harness: Harness) -> None:
    """As of sealed files: what ended still ends in the queues."""
    harness.add(made("T"))
    harness.add(topic="T")
    harness.add(TopicEnded("T"))
    harness.run()
    state = dict(harness.state.scan(b"", b"\xff"))
    harness.queues = KvConsumeQueueStore(MemoryEngine((*FAMILIES, STATE)))
    told: list[int] = []
    harness.applier = StateApplier(harness.applier._log, harness.state, harness.queues)
    harness.applier.add_listener(lambda _changes, at: told.append(at))
    harness.run()
    assert dict(harness.state.scan(b"", b"\xff")) == state
    assert told == []
    assert harness.queues.queue_ids("T") == []


def test_a_record_that_met_a_stall_is_applied_once(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.add(topic="A")
    harness.add(made("T"))
    delete, told = harness.queues.delete_topic, list[int]()
    harness.add(TopicEnded("T"))
    harness.applier.add_listener(lambda _changes, at: told.append(at))
    stalls = iter(range(2))

    def stalling(name: str, at: int) -> None:
        if next(stalls, None) is not None:
            raise StoreBusyError("planted")
        delete(name, at)

    monkeypatch.setattr(harness.queues, "delete_topic", stalling)
    for _ in range(2):
        with pytest.raises(StoreBusyError):
            harness.run()
    harness.run()
    assert Tables(harness.state).topic("T") is None
    assert told == [SIZE, 2 * SIZE], "each told of once"


def test_a_record_that_met_a_stall_is_told_of_however_much_is_appended_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What listeners remember of a name must not outlive it: its rows are gone by then."""
    with open_small(tmp_path / "store") as store:
        topics = store._topics
        store.put([Message("T", b"old", 0)])
        assert topics.begins_at("T") is not None
        delete, stalled, over = store.queues.delete_topic, Event(), Event()

        def stall(name: str, at: int) -> None:
            if not over.is_set():
                stalled.set()
                raise StoreBusyError("RocksDB stalls writes")
            delete(name, at)

        monkeypatch.setattr(store.queues, "delete_topic", stall)
        with ThreadPoolExecutor() as pool:
            deleting = pool.submit(store.delete_topic, "T")
            try:
                assert stalled.wait(60)
                for number in range(2 * _MOST_RECENT):
                    store._appends.decide(lambda number=number: [made(f"U{number}")])  # type: ignore[misc]
            finally:
                over.set()
            deleting.result(60)
        store.wait_visible()
        assert topics.begins_at("T") is None
        assert topics.ends.get("T").is_dispatched


def test_listeners_come_and_go(harness: Harness) -> None:
    told: list[tuple[list[str], int]] = []

    def note(changes: Changes, at: int) -> None:
        told.append((changes.ended, at))

    leave = harness.applier.add_listener(note)
    harness.add(made("T"))
    harness.add(TopicEnded("T"))
    harness.run()
    leave()
    harness.add(made("T"))
    harness.run()
    assert told == [([], 0), (["T"], SIZE)]


def test_a_killed_store_and_a_live_one_apply_the_same(tmp_path: Path) -> None:
    root, image = tmp_path / "store", tmp_path / "image"
    with open_small(root) as store:
        for number in range(300):
            store.put([Message(f"T{number % 7}", b"x", light_queues=(f"%LMQ%{number % 5}",))])
            if number % 11 == 0:
                store.delete_topic(f"T{number % 7}")
            store.commit_offsets(f"g{number % 3}", [(f"%LMQ%{number % 5}", 0, 0)], allow_back=True)
        live = dict(store.state.scan(b"a", b"\xff"))
        copy_open(root, image)
    with open_small(image) as store:
        replayed = dict(store.state.scan(b"a", b"\xff"))
    del live[b"p"], replayed[b"p"]
    assert replayed == live
