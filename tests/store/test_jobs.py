"""Jobs run again and again, also after they raised; stop waits for the one that runs."""

from __future__ import annotations

import logging
import threading
import time
from math import inf
from types import SimpleNamespace
from typing import TYPE_CHECKING

from store import jobs as jobs_module
from store.errors import DiskFullError, StoreClosedError
from store.jobs import Jobs

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def test_job_that_raises_is_logged_counted_and_stays_scheduled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    jobs = Jobs()
    third = threading.Event()
    calls: list[str] = []

    def action() -> None:
        calls.append(threading.current_thread().name)
        if len(calls) == 3:
            third.set()
        raise RuntimeError("planted")

    jobs.add("broken", 0.01, action)
    jobs.start()
    assert third.wait(60)
    jobs.stop()
    assert jobs.runs("broken") >= 3
    assert jobs.failures("broken") == jobs.runs("broken") == len(calls)
    assert "planted" in caplog.text
    assert all(name.startswith("jobs") for name in calls)


def test_stop_waits_for_the_running_job_and_can_be_repeated() -> None:
    jobs = Jobs()
    entered, leave = threading.Event(), threading.Event()
    finished: list[bool] = []

    def action() -> None:
        entered.set()
        assert leave.wait(60)
        finished.append(True)

    jobs.add("slow", 0.01, action)
    jobs.start()
    assert entered.wait(60)
    stopper = threading.Thread(target=jobs.stop)
    stopper.start()
    assert finished == []
    leave.set()
    stopper.join(60)
    assert finished == [True]
    assert jobs.failures("slow") == 0
    jobs.stop()


def test_a_job_that_goes_on_as_the_store_is_closed_has_not_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    jobs = Jobs()

    def closed() -> None:
        raise StoreClosedError("the store is closed")

    jobs.add("ended", 60, closed)
    jobs._run("ended", closed)
    assert (jobs.runs("ended"), jobs.failures("ended")) == (1, 0)
    assert not caplog.records


def test_jobs_never_started_can_be_stopped() -> None:
    jobs = Jobs()
    jobs.add("idle", 60, lambda: None)
    jobs.stop()
    assert jobs.runs("idle") == 0


def test_what_is_raised_again_and_again_is_told_once_and_so_is_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "store.jobs")
    jobs = Jobs()
    raised: list[Exception | None] = [
        *[DiskFullError(f"no space for {number}.sst") for number in range(3)],
        *[None, None],
        *[RuntimeError("planted")] * 3,
        RuntimeError("another"),
        None,
    ]

    def action() -> None:
        if (error := raised.pop(0)) is not None:
            raise error

    jobs.add("job", 1e6, action)
    while raised:
        jobs._run("job", action)
    jobs.stop()
    assert [(record.levelname, record.exc_info is not None) for record in caplog.records] == [
        ("WARNING", False),
        ("INFO", False),
        ("ERROR", True),
        ("ERROR", True),
        ("INFO", False),
    ]
    assert (jobs.runs("job"), jobs.failures("job")) == (10, 7)


def test_a_wall_clock_that_is_set_back_holds_up_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Jobs()
    ran = threading.Event()
    jobs.add("seldom", 100_000, ran.set)
    jobs.start()
    wait(lambda: jobs._scheduler._ahead_s != -inf)
    assert not ran.is_set()
    back = SimpleNamespace(time=lambda: time.time() - 3600, monotonic=time.monotonic)
    monkeypatch.setattr(jobs_module, "time", back)
    assert ran.wait(60)
    jobs.stop()


def wait(until: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 60
    while not until():
        assert time.monotonic() < end_s
