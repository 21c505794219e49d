"""server/jobs/registry.py: one of a kind at a time, each with an end that is remembered."""

from __future__ import annotations

import errno
import json
import threading
from typing import TYPE_CHECKING

import pytest

from migration.errors import UnknownJobError
from migration.jobs import JobState
from server.errors import JobRunningError
from server.jobs import Jobs
from store.errors import InvalidArgumentError, StoreBusyError, StoreClosedError
from store.notes import Notes
from tests.support.fake_clock import FakeClock
from tests.support.held_jobs import WAIT_S, HeldKind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from migration.jobs import JobView


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path / "notes")


def begin(jobs: Jobs, kind: HeldKind, arguments: Mapping[str, str] | None = None) -> JobView:
    view = jobs.start(kind.name, None, arguments or {})
    assert kind.half_way.wait(WAIT_S)
    return view


def end(jobs: Jobs, kind: HeldKind, job_id: str) -> JobView:
    kind.end.set()
    return jobs.wait(job_id, WAIT_S)


def test_a_job_tells_how_far_it_is_and_what_came_of_it(notes: Notes) -> None:
    clock, kind = FakeClock(), HeldKind()
    jobs = Jobs([kind], notes, clock)
    job_id = begin(jobs, kind, {"topic": "orders"}).job_id
    running = jobs.get(job_id)
    assert (running.state, running.step, running.percent) == (JobState.RUNNING, "half", 50.0)
    assert (running.done, running.total, running.unit) == (5, 10, "steps")
    assert (running.started_ms, running.ended_ms) == (clock.now_ms(), 0)
    assert running.remaining_s is None  # nothing was gained in this step
    assert jobs.statistics()["jobs.compact.running"] == 1
    clock.advance(2)
    done = end(jobs, kind, job_id)
    assert (done.state, done.percent) == (JobState.DONE, 100.0)
    assert (done.summary, done.numbers) == ("all ten", {"steps_done": 10})
    assert (done.ended_ms - done.started_ms, done.elapsed_s) == (2000, 2.0)
    assert done.arguments == {"topic": "orders"}
    numbers = jobs.statistics()
    assert (numbers["jobs.compact.running"], numbers["jobs.compact.done"]) == (0, 1)


def test_one_job_of_a_kind_runs_at_a_time(notes: Notes) -> None:
    first, other = HeldKind("compact"), HeldKind("scrub")
    jobs = Jobs([first, other], notes, FakeClock())
    job_id = begin(jobs, first).job_id
    with pytest.raises(JobRunningError) as refused:
        jobs.start("compact", None, {})
    assert refused.value.job_id == job_id
    second = begin(jobs, other).job_id
    assert [view.job_id for view in jobs.views()] == [second, job_id]
    assert [view.job_id for view in jobs.views("compact")] == [job_id]
    end(jobs, first, job_id)
    again = jobs.start("compact", None, {}).job_id
    assert jobs.wait(again, WAIT_S).state is JobState.DONE
    end(jobs, other, second)


def test_a_job_without_a_thread_is_none(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = HeldKind("compact")
    jobs = Jobs([kind], notes, FakeClock())

    def refused(_job: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr("migration.jobs.Job.start", refused)
        with pytest.raises(RuntimeError, match="thread"):
            jobs.start("compact", None, {})
    assert jobs.views() == []
    end(jobs, kind, begin(jobs, kind).job_id)


def test_a_job_is_cancelled_and_stays_so(notes: Notes) -> None:
    kind = HeldKind()
    jobs = Jobs([kind], notes, FakeClock())
    job_id = begin(jobs, kind).job_id
    jobs.cancel(job_id)
    cancelled = jobs.wait(job_id, WAIT_S)
    assert cancelled.state is JobState.CANCELLED
    assert jobs.cancel(job_id) == cancelled


@pytest.mark.parametrize("error", [StoreBusyError("stalled"), ZeroDivisionError("a defect")])
def test_what_the_work_raises_is_the_end_of_its_job_alone(notes: Notes, error: Exception) -> None:
    kind = HeldKind(error=error)
    jobs = Jobs([kind], notes, FakeClock())
    job_id = begin(jobs, kind).job_id
    failed = end(jobs, kind, job_id)
    assert (failed.state, failed.error) == (JobState.FAILED, str(error))
    assert jobs.statistics()["jobs.compact.failed"] == 1


def test_a_kind_that_is_not_there_is_refused(notes: Notes) -> None:
    jobs = Jobs([HeldKind()], notes, FakeClock())
    for name in ("", "other"):
        with pytest.raises(InvalidArgumentError, match="compact") as refused:
            jobs.start(name, None, {})
        assert refused.value.field == "kind"
    with pytest.raises(InvalidArgumentError):
        jobs.views("other")
    for call in (jobs.get, jobs.cancel, jobs.wait):
        with pytest.raises(UnknownJobError):
            call("none")


def test_who_listens_hears_of_each_end(notes: Notes) -> None:
    kind = HeldKind()
    jobs = Jobs([kind], notes, FakeClock())
    heard: list[str] = []
    told = threading.Event()

    def listener(job_id: str) -> None:
        heard.append(job_id)
        told.set()

    take_back = jobs.on_end(listener)
    job_id = begin(jobs, kind).job_id
    end(jobs, kind, job_id)
    assert told.wait(WAIT_S)
    take_back()
    jobs.wait(jobs.start("compact", None, {}).job_id, WAIT_S)
    assert heard == [job_id]


def test_closing_ends_what_runs_and_begins_no_more(notes: Notes) -> None:
    kind = HeldKind()
    jobs = Jobs([kind], notes, FakeClock())
    job_id = begin(jobs, kind).job_id
    jobs.close()
    assert jobs.get(job_id).state is JobState.CANCELLED
    with pytest.raises(StoreClosedError):
        jobs.start("compact", None, {})


def test_the_oldest_ones_are_forgotten(notes: Notes) -> None:
    first, other = HeldKind("compact"), HeldKind("scrub")
    jobs = Jobs([first, other], notes, FakeClock(), kept=3)
    first.end.set()
    other.end.set()
    kept = jobs.start("scrub", None, {}).job_id
    made = []
    for _ in range(5):
        made.append(jobs.start("compact", None, {}).job_id)
        jobs.wait(made[-1], WAIT_S)
    assert [view.job_id for view in jobs.views("compact")] == made[:1:-1]
    assert [view.job_id for view in jobs.views("scrub")] == [kept]


def test_the_last_one_that_was_done_is_told_however_many_failed_since(notes: Notes) -> None:
    clock, kind = FakeClock(), HeldKind("backup")
    jobs = Jobs([kind], notes, clock, kept=3)

    def told(jobs: Jobs) -> list[float]:
        names = ("last_done_ms", "last_done_seconds", "last_done_bytes", "failed_since")
        return [jobs.statistics()[f"jobs.backup.{name}"] for name in names]

    assert told(jobs) == [0, 0, 0, 0]
    kind.numbers = {"bytes": 700}
    job_id = begin(jobs, kind).job_id
    clock.advance(4)
    done_ms = end(jobs, kind, job_id).ended_ms
    kind.error = StoreBusyError("no place")
    for _ in range(5):
        clock.advance(60)
        jobs.wait(jobs.start("backup", None, {}).job_id, WAIT_S)
    assert told(jobs) == [done_ms, 4, 700, 5]
    kind.end.clear()
    cancelled = jobs.start("backup", None, {}).job_id
    jobs.cancel(cancelled)
    jobs.wait(cancelled, WAIT_S)
    assert told(jobs) == [done_ms, 4, 700, 5], "whoever cancelled one knows of it"
    # A restart knows when it was; of those that failed, the ones that are remembered.
    assert told(Jobs([kind], notes, clock)) == [done_ms, 4, 700, 2]


def test_jobs_are_remembered_over_a_restart(tmp_path: Path) -> None:
    notes = Notes(tmp_path / "notes")
    done, cut_off = HeldKind("compact"), HeldKind("scrub")
    jobs = Jobs([done, cut_off], notes, FakeClock())
    ended = end(jobs, done, begin(jobs, done, {"family": "index"}).job_id)
    cut_off_id = begin(jobs, cut_off).job_id
    # As after a crash: nobody heard of the job's end.
    again = Jobs([HeldKind("compact"), HeldKind("scrub")], notes, FakeClock())
    assert again.get(ended.job_id) == ended
    lost = again.get(cut_off_id)
    assert (lost.state, lost.is_running) == (JobState.FAILED, False)
    assert "can be started again" in lost.error
    jobs.close()


@pytest.mark.parametrize("data", [b"", b"\xff", b"{}", b"[1]", b'[{"state": "?"}]', b"[{}]"])
def test_a_history_of_another_form_is_left_out(
    notes: Notes, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    notes.put("jobs", data)
    assert Jobs([HeldKind()], notes, FakeClock()).views() == []
    assert data == b"{}" or "starting without it" in caplog.text


def test_a_damaged_history_is_left_out(notes: Notes, caplog: pytest.LogCaptureFixture) -> None:
    notes.put("jobs", b"[]")
    (notes.directory / "jobs").write_bytes(b"\0" * 11)
    assert Jobs([HeldKind()], notes, FakeClock()).views() == []
    assert "starting without it" in caplog.text


def test_a_history_that_cannot_be_written_harms_no_job(
    notes: Notes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kind = HeldKind()

    def put(name: str, value: bytes) -> None:
        assert json.loads(value)
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(notes, "put", put)
    jobs = Jobs([kind], notes, FakeClock())
    job_id = begin(jobs, kind).job_id
    assert end(jobs, kind, job_id).state is JobState.DONE
    assert "cannot save the history" in caplog.text
