"""A pull that was read ahead is the pull that is read when it comes."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from itertools import count
from time import time
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.edge.call_gate import CallGate, CallKind, Places
from server.edge.request_memory import RequestMemory
from server.reads import read_ahead
from server.reads.answer import Answer, answer_of
from server.reads.read_ahead import DROP_EVERY_S, MOST_STEPS, STEP_S, ReadAhead
from server.reads.reader import Wanted
from server.stage import Stage
from store.errors import StoreError
from store.message import Message
from store.reads import TagFilter
from tests.support.checked import checked
from tests.support.fake_clock import FakeClock
from tests.support.serving import serving
from tests.support.stores import SEGMENT_BYTES, open_small

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from server.reads.read_ahead import Ahead
    from server.reads.reader import Place
    from store.message_store import MessageStore
    from store.reads import Pulled

LIGHT = "%LMQ%a"
BODY = b"x" * 1000
STEP = 70


class Loop:
    """Turns and times are the test's."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.ready: list[Callable[[], object]] = []
        self.later: list[Callable[[], object]] = []

    def time(self) -> float:
        return self.now_s

    def call_soon(self, act: Callable[..., object], *values: object) -> None:
        self.ready.append(lambda: act(*values))

    def call_later(self, delay_s: float, act: Callable[[], object]) -> asyncio.TimerHandle:
        assert delay_s == DROP_EVERY_S
        self.later.append(act)
        return cast("asyncio.TimerHandle", self)

    def cancel(self) -> None:
        self.later.clear()

    def turn(self) -> None:
        ready, self.ready = self.ready, []
        for act in ready:
            act()

    def idle(self) -> None:
        while self.ready:
            self.turn()


class Puller:
    """Pulls as the server does, and holds each answer against what the store says by itself."""

    def __init__(
        self,
        store: MessageStore,
        form: pb.RecordForm = pb.RECORD_FORM_WHOLE,
        *,
        sent_limit_bytes: int = 1 << 30,
    ) -> None:
        self.store = store
        self.form = form
        self.loop = Loop()
        self.memory = RequestMemory(1 << 30, sent_limit_bytes, private=lambda: 0)
        self.gate = CallGate({CallKind.SHORT: Places(9, 9)})
        self.stage = Stage()
        self.ahead = ReadAhead(
            store, self.memory, self.gate, self.stage, cast("asyncio.AbstractEventLoop", self.loop)
        )
        self.from_ahead = 0

    def pull(self, offset: int, most: int = STEP, *, topic: str = "T", tags: str = "") -> Pulled:
        wanted = Wanted(most, TagFilter.parse(tags), self.form)
        place: Place = (topic, 0), offset, 1 << 20, wanted
        self.call("reader")
        found = self.ahead.take(place)
        try:
            pulled = self.store.pull(
                topic, 0, offset, max_messages=most, max_bytes=1 << 20, tag_filter=tags
            )
        except StoreError:
            assert found is None
            raise
        if found is not None:
            self.from_ahead += 1
            plan, answer = found
            assert (plan.next_offset, plan.max_offset) == (pulled.next_offset, pulled.max_offset)
            as_it_comes = answer_of(pulled, self.form, encode=True)
            assert answer._replace(response=decoded(answer)) == as_it_comes._replace(
                response=decoded(as_it_comes)
            )
        if pulled.records:
            self.ahead.answered(place, pulled.next_offset, pulled.max_offset)
        return pulled

    def call(self, peer: str) -> None:
        self.gate.enter(CallKind.SHORT, peer)
        self.gate.leave(CallKind.SHORT, peer)

    def step(self, count: int, at: int = 0) -> int:
        """So many pulls, one after the other, with time between; where they ended."""
        for _ in range(count):
            at = self.pull(at).next_offset
            self.loop.idle()
        return at

    @property
    def held_bytes(self) -> int:
        assert self.memory._sent_bytes == self.ahead._bytes
        return self.memory._sent_bytes


def decoded(answer: Answer) -> pb.PullResponse:
    assert isinstance(answer.response, bytes)
    return pb.PullResponse.FromString(answer.response)


def put(store: MessageStore, messages: int, body: bytes = BODY) -> None:
    for _ in range(messages):
        store.put([Message("T", body, 0, tag="t", keys=("k",), light_queues=(LIGHT,))])


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[MessageStore]:
    with checked(open_small(tmp_path / "store", clock)) as opened:
        opened.create_topics([("T", 1)])
        put(opened, 10 * STEP)
        yield opened


def test_the_third_step_and_those_behind_it_are_read_ahead(store: MessageStore) -> None:
    puller = Puller(store)
    end = puller.step(2)
    assert (puller.from_ahead, end) == (0, 2 * STEP)
    assert puller.held_bytes > STEP * len(BODY)
    puller.step(3, end)
    assert puller.from_ahead == 3


def test_a_step_of_one_message_is_read_ahead_too(store: MessageStore) -> None:
    puller = Puller(store)
    for offset in range(5):
        puller.pull(offset, 1)
        puller.loop.idle()
    assert puller.from_ahead == 3


def test_nothing_is_read_ahead_where_it_is_not_worth_it(store: MessageStore) -> None:
    puller = Puller(store)
    for at in (0, 200, 400):  # not one behind the other
        puller.pull(at)
        puller.loop.idle()
    for number in range(4):  # a filter
        puller.pull(number * STEP, tags="t")
        puller.loop.idle()
    for number in range(4):  # slow ones
        puller.pull(number * STEP)
        puller.loop.idle()
        puller.loop.now_s += STEP_S
    assert puller.from_ahead == puller.held_bytes == 0


def test_the_end_of_a_queue_is_not_read_ahead(store: MessageStore) -> None:
    puller = Puller(store)
    assert puller.step(10) == 10 * STEP
    assert puller.from_ahead == 7  # not the first two, and not the last
    assert puller.held_bytes == 0


def test_a_step_that_two_take_is_read_once(store: MessageStore) -> None:
    puller = Puller(store)
    puller.step(2)
    held = puller.held_bytes
    puller.step(2)
    assert puller.held_bytes == held


def test_who_came_meanwhile_goes_first(store: MessageStore) -> None:
    puller = Puller(store)
    puller.pull(0)
    puller.pull(STEP)
    puller.loop.turn()
    puller.call("another")
    puller.loop.idle()
    assert puller.held_bytes == 0


def test_nothing_is_read_ahead_while_others_make_calls(store: MessageStore) -> None:
    puller = Puller(store)
    at = 0
    for _ in range(4):
        puller.call("another")
        at = puller.step(1, at)
    assert puller.from_ahead == puller.held_bytes == 0
    puller.step(2, at)
    assert puller.from_ahead == 1


def test_what_nobody_asks_for_is_dropped(store: MessageStore) -> None:
    puller = Puller(store)
    puller.step(2)
    assert puller.held_bytes
    [drop] = puller.loop.later
    drop()
    assert puller.held_bytes == 0
    puller.step(3, 2 * STEP)
    assert puller.from_ahead == 2  # it goes on


def test_a_server_that_ends_holds_nothing_and_reads_nothing(store: MessageStore) -> None:
    puller = Puller(store)
    puller.step(2)
    puller.stage.ready()
    assert puller.held_bytes
    puller.stage.drain()
    assert (puller.held_bytes, puller.loop.later) == (0, [])
    puller.step(2)
    assert puller.held_bytes == 0


def test_memory_is_bounded(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "MOST_BYTES", 3 * STEP * len(BODY))
    puller = Puller(store)
    for most in range(STEP, STEP + 2 * MOST_STEPS):
        puller.pull(0, most)
        puller.pull(most, most)
        puller.loop.idle()
        assert puller.held_bytes <= read_ahead.MOST_BYTES
        assert len(puller.ahead._ends) <= MOST_STEPS
    assert puller.held_bytes


def test_others_are_not_kept_from_sending(store: MessageStore) -> None:
    puller = Puller(store, sent_limit_bytes=STEP * len(BODY))
    puller.step(4)
    assert puller.from_ahead == puller.held_bytes == 0
    puller = Puller(store, sent_limit_bytes=2 * STEP * len(BODY))
    puller.memory.sends(2 * STEP * len(BODY))
    puller.step(4)
    assert puller.from_ahead == puller.ahead._bytes == 0


def expire(store: MessageStore, clock: FakeClock) -> None:
    clock.advance(100 * 3600)
    store.flush()
    store._services.retention.run_once(now=True)


def make_anew(store: MessageStore) -> None:
    store.delete_topic("T")
    store.create_topics([("T", 1)])
    put(store, 5 * STEP, b"y" * 1000)


def test_what_changed_since_is_read_anew(store: MessageStore, clock: FakeClock) -> None:
    puller = Puller(store)

    @contextmanager
    def read_ahead_before() -> Iterator[None]:
        low, _ = store.bounds([("T", 0)])[0]
        end = puller.step(2, low)
        assert puller.held_bytes
        found = puller.from_ahead
        yield
        low, high = store.bounds([("T", 0)])[0]
        if low <= end <= high:
            puller.pull(end)
        else:
            with pytest.raises(StoreError):
                puller.pull(end)
        assert puller.from_ahead == found
        puller.ahead._drop()

    with read_ahead_before():
        store.keep("T", messages=4 * STEP)
    store.keep("T", messages=0)
    with read_ahead_before():
        make_anew(store)
    with read_ahead_before():
        store.flush()
        store.keep("T", latest=True)
        store.keep_latest("T", 0, lambda _done, _total: None)


def test_a_queue_with_hidden_messages_is_not_read_ahead(store: MessageStore) -> None:
    """What of it is hidden is looked up when it is asked for, so nothing of it could be taken."""
    for number in range(6 * STEP):
        store.put([Message("T", BODY, 0, keys=(str(number),))])
    store.flush()
    store.keep("T", latest=True)
    puller = Puller(store)
    at = puller.step(3, 10 * STEP)
    assert puller.from_ahead == 1
    puller.ahead._drop()
    store.keep_latest("T", 0, lambda _done, _total: None)
    for _ in range(2):
        at = puller.step(1, at)
        assert puller.held_bytes == 0


def test_bounds_are_those_of_the_moment_when_it_is_asked_for(store: MessageStore) -> None:
    puller = Puller(store)
    store.keep("T", messages=9 * STEP)
    end = puller.step(2, STEP)
    put(store, 5)
    assert puller.pull(end).max_offset == 10 * STEP + 5
    assert puller.pull(end).min_offset == STEP + 5
    assert puller.from_ahead == 1
    end = puller.step(3, end)
    store.keep("T", messages=0)  # from the first one on: that is not said, but left out
    assert puller.pull(end).min_offset == 0
    assert puller.from_ahead == 2


def test_an_expired_segment_is_not_shown(store: MessageStore, clock: FakeClock) -> None:
    puller = Puller(store)
    end = puller.step(2)
    expire(store, clock)
    assert store.bounds([("T", 0)])[0].min_offset > end
    with pytest.raises(StoreError):
        puller.pull(end)
    assert puller.from_ahead == puller.held_bytes == 0


def test_a_deleted_topic_is_not_shown(store: MessageStore) -> None:
    puller = Puller(store)
    end = puller.step(2)
    store.delete_topic("T")
    with pytest.raises(StoreError):
        puller.pull(end)
    assert puller.from_ahead == 0


ACTS = ("put", "put", *["pull"] * 6, "anew", "expire", "keep", "latest")


@settings(max_examples=25)
@given(
    acts=st.lists(
        st.tuples(st.sampled_from(ACTS), st.sampled_from(("T", LIGHT))), min_size=10, max_size=40
    ),
    form=st.sampled_from((pb.RECORD_FORM_WHOLE, pb.RECORD_FORM_DECODED)),
)
def test_ahead_is_as_it_comes(
    tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[str, str]], form: pb.RecordForm
) -> None:
    """Whatever happens in between, `Puller.pull` finds both the same."""
    clock = FakeClock(int(time() * 1000))  # RocksDB drops what has expired by the system's
    root = tmp_path_factory.mktemp("ahead") / "store"
    with open_small(root, clock) as store:
        store.create_topics([("T", 1)])
        put(store, 40)
        puller = Puller(store, form)
        at = {"T": 0, LIGHT: 0}
        kept = count(30)
        for act, topic in acts:
            if act == "pull":
                for _ in range(3):
                    try:
                        at[topic] = puller.pull(at[topic], 5, topic=topic).next_offset
                    except StoreError:
                        at[topic] = store.bounds([(topic, 0)])[0].min_offset
                    puller.loop.idle()
            elif act == "anew":
                store.delete_topic(topic)
                store.create_topics([("T", 1)])
                put(store, 30)
            elif act == "expire":
                put(store, SEGMENT_BYTES // len(BODY) // 2)
                expire(store, clock)
                put(store, 10)
            elif act == "keep":
                store.keep("T", messages=next(kept))
            elif act == "latest":
                store.keep("T", latest=True)
                store.keep_latest(topic, 0, lambda _done, _total: None)
            else:
                put(store, 20)


async def test_the_server_reads_ahead_for_calls_on_a_stream(tmp_path: Path) -> None:
    async with serving(tmp_path / "store") as served:
        await served.topics.CreateTopics(
            pb.CreateTopicsRequest(topics=[pb.CreateTopicRequest(name="T", queue_count=1)])
        )
        messages = [pb.Message(topic="T", queue_id=0, body=BODY)] * (5 * STEP)
        await served.messages.PutBatch(pb.PutBatchRequest(messages=messages))
        reads = served.serving.reads
        taken: list[bool] = []
        take = reads._ahead.take

        def noted(place: Any) -> Ahead | None:  # noqa: ANN401 - as `take`
            found = take(place)
            taken.append(found is not None)
            return found

        reads._ahead.take = noted  # type: ignore[method-assign]
        for number in range(4):
            request = pb.PullRequest(
                topic="T",
                offset=number * STEP,
                max_messages=STEP,
                form=pb.RECORD_FORM_WHOLE,
            )
            served.serving._gate.enter(CallKind.PULL, "reader")
            now = reads.pull_now(request)
            served.serving._gate.leave(CallKind.PULL, "reader")
            assert now == await reads.pull(request, None)
            for _ in range(4):
                await asyncio.sleep(0)
        assert taken == [False, False, True, True]
