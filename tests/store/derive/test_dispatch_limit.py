"""Dispatch up to its limit, and of deferred batches, is done by whoever calls `dispatch_due`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from store.derive.reput import _GATHERED_ROWS
from store.errors import (
    StoreClosedError,
    StoreFailedError,
)
from store.message import Message
from tests.support.dispatching import SOME, Harness

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType

    from _typeshed import TraceFunction


def test_nothing_beyond_the_limit_is_dispatched(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "log", inline=False)
    harness.limit = 0
    ends = [harness.append(*SOME) for _ in range(3)]
    harness.reput.start()
    harness.reput.wake()
    harness.limit = ends[0]
    harness.reput.wake()
    assert harness.dispatched.wait_for(ends[0], 30)
    assert harness.recorder.end == ends[0]
    harness.limit = ends[2]
    harness.reput.stop()
    assert harness.recorder.requests == harness.appended
    with pytest.raises(StoreClosedError):
        harness.dispatched.wait_for(ends[2] + 1, 0)
    harness.close()


def test_whoever_raises_the_limit_dispatches_a_few_rows_up_to_it(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "log", inline=False)
    harness.limit = 0
    ends = [harness.append(*SOME) for _ in range(2)]
    harness.reput.dispatch_due()
    assert harness.recorder.calls == []  # nothing is due
    harness.limit = ends[0]
    harness.reput.dispatch_due()  # there is no thread yet
    assert harness.recorder.end == ends[0]
    harness.limit = ends[1]
    harness.reput.dispatch_due()
    assert harness.recorder.requests == harness.appended
    harness.close()


def test_a_deferred_batch_waits_for_dispatch_due(harness: Harness) -> None:
    for number in range(3):
        end = harness.append(Message("T", b"deferred"), defer=True)
        assert harness.dispatched.value < end
        assert len(harness.recorder.requests) == number
        harness.reput.dispatch_due()
        assert harness.dispatched.value == end
    assert harness.recorder.requests == harness.appended


def test_appenders_come_between_any_two_steps_of_dispatch_due(harness: Harness) -> None:
    left = 40

    def enter(frame: FrameType, _event: str, _arg: object) -> TraceFunction | None:
        if frame.f_code.co_name not in ("_is_little", "_dispatch_pending"):
            return None
        frame.f_trace_opcodes = True
        return step

    def step(_frame: FrameType, event: str, _arg: object) -> TraceFunction:
        nonlocal left
        if event == "opcode" and left:
            left -= 1
            harness.append(Message("T", b"meanwhile"), defer=True)
        return step

    sys._getframe().f_trace_opcodes = True  # Python 3.12 asks for it
    while left:
        end = harness.append(Message("T", b"deferred"), defer=True)
        sys.settrace(enter)
        try:
            harness.reput.dispatch_due()
        finally:
            sys.settrace(None)
        assert harness.dispatched.value >= end
    harness.reput.dispatch_due()
    assert harness.recorder.requests == harness.appended


@pytest.mark.parametrize("count", [1, _GATHERED_ROWS + 1])
def test_who_appends_behind_what_is_held_dispatches_both(harness: Harness, count: int) -> None:
    for _ in range(2):
        harness.append(Message("T", b"deferred"), defer=True)
    end = harness.append(*[Message("T", b"next")] * count)
    assert harness.dispatched.value == end
    assert harness.recorder.requests == harness.appended


def test_a_deferred_batch_without_dispatch_due_is_dispatched_at_the_end(harness: Harness) -> None:
    harness.reput.start()
    harness.append(Message("T", b"deferred"), defer=True)
    harness.reput.stop()
    assert harness.recorder.requests == harness.appended


def test_many_rows_are_not_held(harness: Harness) -> None:
    queues = tuple(f"%LMQ%{number}" for number in range(_GATHERED_ROWS))
    end = harness.append(Message("T", b"in many", light_queues=queues), defer=True)
    assert harness.dispatched.value == end


def test_what_is_held_beside_a_stall_is_left_to_the_thread(harness: Harness) -> None:
    harness.recorder.busy = 2
    end = harness.append(Message("T", b"deferred"), defer=True)
    harness.reput.dispatch_due()
    assert harness.dispatched.value < end
    harness.reput.start()
    assert harness.dispatched.wait_for(end, 30)
    assert harness.recorder.requests == harness.appended


@pytest.mark.parametrize("in_one", [True, False])
def test_many_rows_are_left_to_the_thread(tmp_path: Path, in_one: bool) -> None:
    harness = Harness(tmp_path / "log", inline=False)
    many = [Message("T", b"x")] * (_GATHERED_ROWS + 1)
    for messages in [many] if in_one else [[message] for message in many]:
        harness.append(*messages)
    harness.reput.dispatch_due()
    assert harness.recorder.calls == []
    harness.reput.start()
    assert harness.dispatched.wait_for(harness.log.appended_offset, 30)
    assert harness.recorder.requests == harness.appended
    harness.close()


def test_what_the_list_did_not_take_is_left_to_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = Harness(tmp_path / "log", inline=False)
    with monkeypatch.context() as small:
        small.setattr("store.derive.reput._PENDING_BYTES", 0)
        harness.append(*SOME)
    end = harness.append(*SOME)
    harness.reput.dispatch_due()
    assert harness.recorder.calls == []
    harness.reput.start()
    assert harness.dispatched.wait_for(end, 30)
    assert harness.recorder.requests == harness.appended
    harness.close()


def test_a_stall_of_whoever_raises_the_limit_is_waited_for_by_the_thread(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "log", inline=False)
    end = harness.append(*SOME)
    harness.recorder.busy = 1
    harness.reput.dispatch_due()
    assert harness.dispatched.value == harness.log.start_offset
    harness.reput.start()  # it was woken before
    assert harness.dispatched.wait_for(end, 30)
    assert harness.recorder.requests == harness.appended
    harness.close()


def test_a_failure_of_whoever_raises_the_limit_is_final_too(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "log", inline=False)
    end = harness.append(*SOME)
    harness.recorder.error = RuntimeError("planted")
    harness.reput.dispatch_due()
    with pytest.raises(StoreFailedError):
        harness.dispatched.wait_for(end, 0)
    harness.close()
