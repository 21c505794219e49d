"""Flush services: one flush for many, rounds by pages and time, a failure that is final."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from store.config import StoreConfig
from store.errors import FlushError, StoreClosedError
from store.log.flush import ENOUGH_BYTES, ENOUGH_PUTS, GroupCommitService, IntervalFlushService
from store.log.watermark import Watermark

if TYPE_CHECKING:
    from pathlib import Path


class FakeClock:
    """Stands still until told."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic_s(self) -> float:
        return self.seconds


class FakeLog:
    """A log whose flush is a number; it can be held in the middle of one."""

    def __init__(self) -> None:
        self.appended = 0
        self.asked: list[int] = []
        self.error: OSError | None = None
        self.entered = threading.Semaphore(0)
        self.gate: threading.Semaphore | None = None

    def flush(self, least_pages: int) -> int:
        self.asked.append(least_pages)
        end = self.appended
        if self.gate is not None:
            self.entered.release()
            assert self.gate.acquire(timeout=60)
        if self.error is not None:
            raise self.error
        return end


def interval_service(
    root: Path, log: FakeLog, mark: Watermark, clock: FakeClock, interval_ms: int = 500
) -> IntervalFlushService:
    return IntervalFlushService(
        log, mark, StoreConfig(root=root, flush_interval_ms=interval_ms), clock
    )


def test_group_commit_makes_what_was_asked_for_durable() -> None:
    log, mark = FakeLog(), Watermark("flushed")
    service = GroupCommitService(log, mark)
    service.start()
    log.appended = 100
    service.request(100)
    assert mark.wait_for(100, timeout_s=60)
    service.stop()


def test_requests_during_a_flush_share_the_next_one() -> None:
    log, mark = FakeLog(), Watermark("flushed")
    log.gate = threading.Semaphore(0)
    service = GroupCommitService(log, mark)
    service.start()
    log.appended = 1
    service.request(1)
    assert log.entered.acquire(timeout=60)  # the first flush runs, it covers 1
    for end in range(2, 66):
        log.appended = end
        service.request(end)
    log.gate.release()
    assert mark.wait_for(1, timeout_s=60)
    assert not mark.wait_for(2, timeout_s=0)
    assert log.entered.acquire(timeout=60)
    log.gate.release()
    assert mark.wait_for(65, timeout_s=60)
    assert log.asked == [0, 0]
    log.gate.release()
    service.stop()


def test_nobody_is_answered_before_the_flush_ends() -> None:
    log, mark = FakeLog(), Watermark("flushed")
    log.gate = threading.Semaphore(0)
    service = GroupCommitService(log, mark)
    service.start()
    seen: list[BaseException | None] = []
    log.appended = 10
    service.request(10)
    mark.call_when(10, seen.append)
    assert log.entered.acquire(timeout=60)
    assert seen == []
    log.gate.release()
    log.gate.release()  # for the last flush of stop
    service.stop()
    assert seen == [None]


def test_failed_fsync_is_final_and_never_tried_again() -> None:
    log, mark = FakeLog(), Watermark("flushed", 5)
    service = GroupCommitService(log, mark)
    log.error = OSError(5, "planted")
    service.start()
    log.appended = 10
    service.request(10)
    with pytest.raises(FlushError, match="nothing above 5"):
        mark.wait_for(10, timeout_s=60)
    log.error = None  # the disk pretends to be well again
    service.request(11)
    service.stop()
    service.run_once()
    assert log.asked == [0]
    assert mark.value == 5
    with pytest.raises(FlushError):
        mark.wait_for(11, timeout_s=60)
    assert isinstance(mark.failure, FlushError)
    assert mark.failure.__cause__ is not None


def test_an_error_of_our_own_reaches_the_waiters_too() -> None:
    log, mark = FakeLog(), Watermark("flushed")
    service = GroupCommitService(log, mark)
    service.start()
    service.request(10)  # never appended: a defect of the caller
    with pytest.raises(FlushError, match="never appended"):
        mark.wait_for(10, timeout_s=60)
    service.stop()


def test_stop_flushes_what_is_appended_and_can_be_repeated() -> None:
    log, mark = FakeLog(), Watermark("flushed")
    service = GroupCommitService(log, mark)
    service.start()
    log.appended = 7
    service.stop()
    assert mark.value == 7
    service.stop()
    assert log.asked == [0]
    with pytest.raises(StoreClosedError):
        mark.wait_for(8, timeout_s=60)


def test_stop_of_a_service_never_started_flushes_once() -> None:
    log, mark = FakeLog(), Watermark("flushed")
    service = GroupCommitService(log, mark)
    log.appended = 7
    service.stop()
    service.stop()
    assert mark.value == 7
    assert log.asked == [0]


def test_interval_rounds_ask_for_pages_and_now_and_then_for_everything(tmp_path: Path) -> None:
    log, mark, clock = FakeLog(), Watermark("flushed"), FakeClock()
    service = interval_service(tmp_path, log, mark, clock)
    service.run_once()  # the first is thorough
    clock.seconds = 0.5
    service.run_once()
    clock.seconds = 9.9
    service.run_once()
    clock.seconds = 10.0
    service.run_once()
    clock.seconds = 10.5
    service.run_once()
    assert log.asked == [0, 4, 4, 0, 4]


def test_interval_service_flushes_at_once_when_asked(tmp_path: Path) -> None:
    log, mark, clock = FakeLog(), Watermark("flushed"), FakeClock()
    service = interval_service(tmp_path, log, mark, clock, interval_ms=10_000_000)
    service.run_once()
    service.start()
    log.appended = 3
    service.request(3)
    assert mark.wait_for(3, timeout_s=60)
    assert log.asked == [0, 0]
    service.stop()


def test_interval_service_makes_rounds_by_itself(tmp_path: Path) -> None:
    log, mark, clock = FakeLog(), Watermark("flushed"), FakeClock()
    service = interval_service(tmp_path, log, mark, clock, interval_ms=1)
    log.appended = 3
    service.start()
    assert mark.wait_for(3, timeout_s=60)  # nobody asked
    service.stop()


def test_interval_failure_is_final(tmp_path: Path) -> None:
    log, mark, clock = FakeLog(), Watermark("flushed"), FakeClock()
    service = interval_service(tmp_path, log, mark, clock)
    log.appended = 3
    log.error = OSError(5, "planted")
    service.run_once()
    log.error = None
    service.run_once()
    service.stop()
    assert log.asked == [0]
    assert isinstance(mark.failure, FlushError)


def test_callers_that_come_together_share_a_flush_and_a_lone_one_never_waits() -> None:
    """After a round that answered many puts the next one gathers, until it has enough."""
    log, mark = FakeLog(), Watermark("flushed")
    service = GroupCommitService(log, mark, gather_s=60.0)
    service.start()
    try:
        log.appended = 1
        service.request(1)
        assert mark.wait_for(1, 10)  # alone: at once, though gathering may take a minute
        log.appended = 2
        service.request(2, puts=2 * ENOUGH_PUTS)
        assert mark.wait_for(2, 10)
        before = service.seconds.read().times
        for end in range(3, 3 + ENOUGH_PUTS):
            log.appended = end
            service.request(end)
        assert mark.wait_for(2 + ENOUGH_PUTS, 10)
        assert service.seconds.read().times == before + 1
    finally:
        service.stop()


@pytest.mark.parametrize("size", [ENOUGH_BYTES // 2, 4 * ENOUGH_BYTES])
def test_large_batches_that_come_together_share_a_flush(size: int) -> None:
    """Each of them has puts enough."""
    log, mark = FakeLog(), Watermark("flushed")
    service = GroupCommitService(log, mark, gather_s=60.0)
    service.start()
    try:
        log.appended = size
        service.request(log.appended, puts=ENOUGH_PUTS)
        assert mark.wait_for(size, 10)  # alone, and the first: at once
        before = service.seconds.read().times
        for _ in range(3):
            log.appended += min(size, ENOUGH_BYTES) // 4
            service.request(log.appended, puts=ENOUGH_PUTS)
            while not service._gathering:
                assert not mark.wait_for(size + 1, 0.001)
        log.appended += min(size, ENOUGH_BYTES) // 4
        service.request(log.appended, puts=ENOUGH_PUTS)
        assert mark.wait_for(log.appended, 10)  # as many bytes as the last round had, or enough
        assert service.seconds.read().times == before + 1
    finally:
        service.stop()


def test_as_many_as_the_last_flush_answered_are_waited_for_and_no_more() -> None:
    log, mark = FakeLog(), Watermark("flushed")
    service = GroupCommitService(log, mark, gather_s=60.0)
    service.start()
    try:
        log.appended = 1
        service.request(1, puts=3)
        assert mark.wait_for(1, 10)
        for end in (2, 3):
            log.appended = end
            service.request(end)
        log.appended = 4
        service.request(4)
        assert mark.wait_for(4, 10)
        assert service.seconds.read().times == 2
    finally:
        service.stop()


def test_flushes_that_had_something_to_do_are_timed() -> None:
    log = FakeLog()
    service = GroupCommitService(log, Watermark("flushed"))
    service.run_once()
    assert service.seconds.read().times == 0
    log.appended = 100
    service.run_once()
    timed = service.seconds.read()
    assert timed.times == 1
    assert timed.total > 0
