"""server/puts/coalescer.py: one append for what arrives together, each caller with its own end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.puts.appender import Appender
from server.puts.coalescer import MAX_MESSAGES, PutCoalescer, PutResult
from server.puts.durability import Durability
from server.puts.gathering import GATHERING_S, LONE_CALLS, QUIET_TURNS
from server.wire.put_limits import INLINE_PARTS
from server.workers import Workers
from store.consume_queue import DispatchRequest
from store.errors import (
    AppendWouldWaitError,
    FlushError,
    FlushTimeoutError,
    InvalidArgumentError,
    StoreBusyError,
)
from store.message import Appended, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.message_store import MessageStore


class RecordingStore:
    """Appends to a list, one physical byte a message; refuses what the test tells it to."""

    def __init__(self, *, sync: bool = False) -> None:
        self.appends: list[list[bytes]] = []
        self.refusals: dict[bytes, Exception] = {}
        self.sync = sync
        self.would_wait = False
        self.held = 0  # appends that are not dispatched
        self.waiting: list[Callable[[BaseException | None], None]] = []

    def append(
        self,
        messages: Sequence[Message],
        *,
        separate: bool,
        wait: bool = True,
        dispatch: bool = True,
    ) -> Appended:
        assert separate, "puts of several callers are no batch"
        if not wait and self.would_wait:
            raise AppendWouldWaitError("another append is in progress")
        for index, message in enumerate(messages):
            error = self.refusals.get(message.body)
            if isinstance(error, InvalidArgumentError):
                raise InvalidArgumentError(f"messages[{index}].{error.field}", error.reason)
            if error is not None:
                raise error
        start = sum(map(len, self.appends))
        self.appends.append([message.body for message in messages])
        self.held += not dispatch
        requests = [
            DispatchRequest("t", 0, at, at, 1, 0, 77, (), (), True)
            for at in range(start, start + len(messages))
        ]
        return Appended(requests, start + len(messages), 77)

    def dispatch_appended(self) -> None:
        self.held = 0

    def is_durable(self, end_offset: int) -> bool:
        return not self.sync

    def when_durable(
        self, end_offset: int, callback: Callable[[BaseException | None], None]
    ) -> None:
        self.waiting.append(callback)

    def flushed(self, error: BaseException | None = None) -> None:
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback(error)


def _coalescer(store: RecordingStore, timeout_s: float = 5.0) -> PutCoalescer:
    loop = asyncio.get_running_loop()
    real = cast("MessageStore", store)
    return PutCoalescer(
        real, Appender(real, Workers(1)), Durability(real, loop, timeout_s), loop, timeout_s
    )


def _message(body: bytes) -> Message:
    return Message("t", body)


async def test_puts_of_one_turn_are_one_append() -> None:
    store = RecordingStore()
    coalescer = _coalescer(store)
    results = await asyncio.gather(*(coalescer.put(_message(b"%d" % n)) for n in range(5)))
    assert store.appends == [[b"0", b"1", b"2", b"3", b"4"]]
    assert [request.queue_offset for request, _ in results] == [0, 1, 2, 3, 4]
    assert {time_ms for _, time_ms in results} == {77}


async def test_puts_of_two_turns_are_two_appends() -> None:
    store = RecordingStore()
    coalescer = _coalescer(store)
    await coalescer.put(_message(b"a"))
    await coalescer.put(_message(b"b"))
    assert store.appends == [[b"a"], [b"b"]]


async def _in_turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def _with_company(store: RecordingStore) -> PutCoalescer:
    """One whose last puts came in calls of their own, and together."""
    coalescer = _coalescer(store)
    await asyncio.gather(*(coalescer.put(_message(b"x")) for _ in range(2)))
    store.appends.clear()
    return coalescer


async def test_calls_in_company_are_gathered_over_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    store = RecordingStore()
    coalescer = await _with_company(store)
    # Turns count here, however long they take.
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: 100.0)
    putting = []
    for number in range(4):
        putting.append(coalescer.put(_message(b"%d" % number)))
        await _in_turns(QUIET_TURNS - 2)
    assert store.appends == []
    await asyncio.gather(*putting)
    assert store.appends == [[b"0", b"1", b"2", b"3"]]


async def test_a_call_that_lost_its_company_is_the_last_to_wait_for_it() -> None:
    store = RecordingStore()
    coalescer = await _with_company(store)
    await coalescer.put(_message(b"a"))
    putting = coalescer.put(_message(b"b"))
    await _in_turns(2)
    assert putting.done()
    assert store.appends == [[b"a"], [b"b"]]


async def test_after_some_lone_calls_one_waits_for_company() -> None:
    """Calls that gRPC hands over one a turn would not meet otherwise."""
    store = RecordingStore()
    coalescer = _coalescer(store)
    for _ in range(LONE_CALLS):
        putting = coalescer.put(_message(b"alone"))
        await _in_turns(2)
        assert putting.done()
    store.appends.clear()
    putting = coalescer.put(_message(b"a"))
    await _in_turns(2)
    await asyncio.gather(putting, coalescer.put(_message(b"b")))
    assert store.appends == [[b"a", b"b"]]


async def test_gathering_ends_however_many_calls_come(monkeypatch: pytest.MonkeyPatch) -> None:
    store = RecordingStore()
    coalescer = await _with_company(store)
    now_s = 100.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s)
    first = coalescer.put(_message(b"first"))
    for _ in range(5):
        coalescer.put(_message(b"next"))
        await _in_turns(1)
    assert not first.done()
    now_s += GATHERING_S
    await _in_turns(2)
    assert first.done()
    assert [len(append) for append in store.appends] == [6]


@given(st.lists(st.integers(0, 2 * QUIET_TURNS), max_size=40))
def test_however_puts_come_each_is_appended_once_and_in_order(puts: list[int]) -> None:
    store = RecordingStore()

    async def run() -> list[PutResult]:
        coalescer = _coalescer(store)
        putting = []
        for number, turns in enumerate(puts):
            putting.append(coalescer.put(_message(b"%d" % number)))
            await _in_turns(turns)
        return await asyncio.gather(*putting)

    results = asyncio.run(run())
    assert [request.queue_offset for request, _ in results] == list(range(len(puts)))
    appended = [body for append in store.appends for body in append]
    assert appended == [b"%d" % number for number in range(len(puts))]


async def test_a_bad_message_fails_its_own_caller_alone() -> None:
    store = RecordingStore()
    store.refusals[b"bad"] = InvalidArgumentError("body", "is bad")
    coalescer = _coalescer(store)
    first, bad, last = await asyncio.gather(
        *(coalescer.put(_message(body)) for body in (b"first", b"bad", b"last")),
        return_exceptions=True,
    )
    assert isinstance(bad, InvalidArgumentError)
    assert bad.field == "message.body"
    assert not isinstance(first, BaseException)
    assert not isinstance(last, BaseException)
    assert store.appends == [[b"first"], [b"last"]]


async def test_an_error_of_the_store_reaches_every_caller() -> None:
    store = RecordingStore()
    store.refusals[b"b"] = StoreBusyError("stalled")
    coalescer = _coalescer(store)
    results = await asyncio.gather(
        *(coalescer.put(_message(body)) for body in (b"a", b"b")), return_exceptions=True
    )
    assert all(isinstance(result, StoreBusyError) for result in results)
    assert store.appends == []


async def test_a_large_gathering_is_cut() -> None:
    store = RecordingStore()
    coalescer = _coalescer(store)
    await asyncio.gather(*(coalescer.put(_message(b"x")) for _ in range(MAX_MESSAGES + 1)))
    assert [len(batch) for batch in store.appends] == [MAX_MESSAGES, 1]


async def test_a_gathering_has_few_parts() -> None:
    store = RecordingStore()
    put = _coalescer(store).put
    keys = tuple(map(str, range(INLINE_PARTS // 2)))
    await asyncio.gather(*(put(Message("t", b"%d" % n, keys=keys)) for n in range(5)))
    assert store.appends == [[b"0", b"1"], [b"2", b"3"], [b"4"]]


async def test_puts_that_would_have_to_wait_are_appended_by_a_thread() -> None:
    store = RecordingStore()
    store.would_wait = True
    store.refusals[b"bad"] = InvalidArgumentError("body", "is bad")
    put = _coalescer(store).put
    results = await asyncio.gather(
        *(put(_message(body)) for body in (b"a", b"bad", b"c")), return_exceptions=True
    )
    assert [isinstance(result, InvalidArgumentError) for result in results] == [False, True, False]
    assert store.appends == [[b"a"], [b"c"]]


async def test_a_put_that_came_alone_is_appended_at_once_and_dispatched_in_the_next_turn() -> None:
    store = RecordingStore()
    result = _coalescer(store).put_now(Message("t", b"a"))
    assert result is not None
    assert result[0].physical_offset == 0
    assert store.appends == [[b"a"]]
    assert store.held == 1  # the answer goes out first
    await asyncio.sleep(0)
    assert store.held == 0


async def test_a_put_that_came_alone_and_would_have_to_wait_is_not_appended() -> None:
    store = RecordingStore()
    store.would_wait = True
    assert _coalescer(store).put_now(Message("t", b"a")) is None
    assert store.appends == []


async def test_a_put_that_came_alone_and_is_bad_names_its_field() -> None:
    store = RecordingStore()
    store.refusals[b"a"] = InvalidArgumentError("tag", "is bad")
    with pytest.raises(InvalidArgumentError) as caught:
        _coalescer(store).put_now(Message("t", b"a"))
    assert caught.value.field == "message.tag"


async def test_a_put_cancelled_before_its_turn_is_not_stored() -> None:
    store = RecordingStore()
    coalescer = _coalescer(store)
    coalescer.put(_message(b"gone")).cancel()
    await coalescer.put(_message(b"kept"))
    assert store.appends == [[b"kept"]]


async def test_a_sync_put_waits_for_the_flush() -> None:
    store = RecordingStore(sync=True)
    putting = _coalescer(store).put(_message(b"a"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert store.appends == [[b"a"]]
    assert not putting.done()
    store.flushed()
    request, _ = await putting
    assert request.queue_offset == 0


async def test_what_one_flush_made_durable_is_answered_in_several_turns() -> None:
    store = RecordingStore(sync=True)
    coalescer = _coalescer(store)
    putting: list[asyncio.Future[PutResult]] = []
    for append in range(3):
        putting += [coalescer.put(_message(b"%d" % append)) for _ in range(10)]
        await _in_turns(QUIET_TURNS + 2)
    assert [len(append) for append in store.appends] == [10, 10, 10]
    store.flushed()
    done = []
    for _ in range(5):
        await asyncio.sleep(0)
        done.append(sum(one.done() for one in putting))
    assert done == [10, 20, 30, 30, 30]
    assert [one.result()[0].queue_offset for one in putting] == list(range(30))
    # And again, from the start.
    late = coalescer.put(_message(b"late"))
    await _in_turns(QUIET_TURNS + 2)
    store.flushed()
    await late


async def test_appends_of_few_are_answered_together() -> None:
    store = RecordingStore(sync=True)
    coalescer = _coalescer(store)
    putting = []
    for _ in range(6):
        putting.append(coalescer.put(_message(b"alone")))
        await asyncio.sleep(0)
    store.flushed()
    for _ in range(3):
        await asyncio.sleep(0)
    assert all(one.done() for one in putting)


async def test_a_failed_flush_reaches_the_caller() -> None:
    store = RecordingStore(sync=True)
    putting = _coalescer(store).put(_message(b"a"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    store.flushed(FlushError("disk gone"))
    with pytest.raises(FlushError):
        await putting


async def test_a_flush_that_takes_too_long_is_told() -> None:
    store = RecordingStore(sync=True)
    with pytest.raises(FlushTimeoutError):
        await _coalescer(store, timeout_s=0.01).put(_message(b"a"))
    store.flushed()  # late: nobody waits any more, and nothing breaks
    await asyncio.sleep(0)
