"""Watermark: only rises, calls each waiter once, fails for good."""

from __future__ import annotations

import logging
import threading
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import FlushError
from store.log.watermark import Watermark


def test_value_never_falls() -> None:
    mark = Watermark("appended", 10)
    mark.advance(5)
    assert mark.value == 10
    mark.advance(11)
    assert mark.value == 11


def test_callback_runs_when_its_end_is_reached_and_not_before() -> None:
    mark = Watermark("flushed")
    seen: list[BaseException | None] = []
    mark.call_when(10, seen.append)
    mark.advance(9)
    assert seen == []
    mark.advance(10)
    assert seen == [None]
    mark.advance(20)
    assert seen == [None]


def test_callback_for_what_is_reached_runs_at_once_on_the_callers_thread() -> None:
    mark = Watermark("flushed", 10)
    threads: list[threading.Thread] = []
    mark.call_when(10, lambda _: threads.append(threading.current_thread()))
    assert threads == [threading.current_thread()]


def test_callbacks_run_on_the_advancing_thread_in_order_of_their_ends() -> None:
    mark = Watermark("flushed")
    order: list[int] = []
    threads: set[str] = set()

    def callback(end: int, error: BaseException | None) -> None:
        assert error is None
        order.append(end)
        threads.add(threading.current_thread().name)

    for end in (30, 10, 20, 40):
        mark.call_when(end, partial(callback, end))
    thread = threading.Thread(target=mark.advance, args=(30,), name="advancer")
    thread.start()
    thread.join()
    assert order == [10, 20, 30]
    assert threads == {"advancer"}


def test_a_callback_that_raises_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    mark = Watermark("flushed")
    seen: list[BaseException | None] = []

    def broken(error: BaseException | None) -> None:
        raise RuntimeError("planted")

    mark.call_when(1, broken)
    mark.call_when(1, seen.append)
    with caplog.at_level(logging.ERROR):
        mark.advance(1)
    assert seen == [None]
    assert "planted" in caplog.text


def test_failure_reaches_present_and_later_waiters() -> None:
    mark = Watermark("flushed", 10)
    error = FlushError("planted")
    present: list[BaseException | None] = []
    later: list[BaseException | None] = []
    mark.call_when(20, present.append)
    mark.fail(error)
    mark.call_when(20, later.append)
    assert present == [error]
    assert later == [error]
    with pytest.raises(FlushError, match="planted"):
        mark.wait_for(11, timeout_s=1000)


def test_what_was_reached_before_a_failure_stays_reached() -> None:
    mark = Watermark("flushed", 10)
    mark.fail(FlushError("planted"))
    seen: list[BaseException | None] = []
    mark.call_when(10, seen.append)
    assert seen == [None]
    assert mark.wait_for(10, timeout_s=0)


def test_nothing_rises_after_a_failure_and_the_first_failure_counts() -> None:
    mark = Watermark("flushed", 10)
    first = FlushError("first")
    mark.fail(first)
    mark.fail(FlushError("second"))
    mark.advance(20)
    assert mark.value == 10
    assert mark.failure is first


def test_wait_gives_up_at_its_deadline_and_leaves_no_waiter() -> None:
    mark = Watermark("flushed")
    assert not mark.wait_for(1, timeout_s=0)
    assert mark._waiters == []


def test_a_waiter_on_another_thread_is_woken() -> None:
    mark = Watermark("flushed")
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(mark.wait_for(5, timeout_s=60)))
    thread.start()
    mark.advance(5)
    thread.join(60)
    assert results == [True]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("wait"), st.integers(0, 30)),
            st.tuples(st.just("advance"), st.integers(0, 30)),
            st.tuples(st.just("fail"), st.just(0)),
        ),
        max_size=40,
    )
)
def test_each_waiter_is_answered_exactly_once_and_rightly(steps: list[tuple[str, int]]) -> None:
    mark = Watermark("flushed")
    error = FlushError("planted")
    answers: list[tuple[int, list[BaseException | None]]] = []
    top, failed = 0, False
    for kind, number in steps:
        if kind == "wait":
            seen: list[BaseException | None] = []
            answers.append((number, seen))
            mark.call_when(number, seen.append)
        elif kind == "advance":
            mark.advance(number)
            top = top if failed else max(top, number)
        else:
            mark.fail(error)
            failed = True
        assert mark.value == top
        for end, seen in answers:
            if end <= top:
                assert seen == [None]
            else:
                assert seen == ([error] if failed else [])
