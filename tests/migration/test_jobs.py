"""migration/jobs.py: the list of jobs knows of each one that runs."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from migration.jobs import Job, JobList
from tests.support.fake_clock import FakeClock
from tests.support.migrating import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Callable


def test_one_that_runs_is_not_forgotten_however_many_follow() -> None:
    jobs = JobList(FakeClock())
    long = jobs.begin("verify", lambda job: job.pause(WAIT_S))
    short = [jobs.begin("backfill", lambda _job: None) for _ in range(30)]
    assert all(job.wait(WAIT_S) for job in short)
    last = jobs.begin("backfill", lambda _job: None)
    assert last.wait(WAIT_S)
    assert jobs.job(long.job_id) is long
    assert len(jobs.all()) == 20
    jobs.stop()
    assert not long.is_running


def test_one_without_a_thread_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = JobList(FakeClock())
    start: Callable[[threading.Thread], None] = threading.Thread.start

    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(RuntimeError, match="thread"):
        jobs.begin("backfill", lambda _job: None)
    assert jobs.all() == []
    monkeypatch.setattr(threading.Thread, "start", start)
    job: Job = jobs.begin("backfill", lambda _job: None)
    assert job.wait(WAIT_S)
