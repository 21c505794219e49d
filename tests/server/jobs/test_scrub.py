"""server/jobs/scrub.py and scrub_schedule.py: passes by hand, and those the server begins."""

from __future__ import annotations

import threading
from itertools import count
from typing import TYPE_CHECKING, cast

import pytest

from kvcq.engine.protocol import KvBatch
from kvcq.inspect import Scrub
from kvcq.tables.keys import UNITS, unit_key
from kvcq_client.pb.v1 import jobs_pb2 as pb
from migration.jobs import JobState
from server.jobs import periodic_check, scrub_schedule
from server.jobs import scrub as scrub_module
from server.jobs.scrub import ScrubWork
from store.errors import InvalidArgumentError, StoreBusyError
from store.message import Message
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import live_engine
from tests.support.store_jobs import jobs_of, run, store_jobs_of
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from migration.jobs import Job
    from server.jobs import StoreJobs
    from store.message_store import MessageStore

MESSAGES = 500
#: One more says that the topic was made.
RECORDS = MESSAGES + 1
HOUR_S = 3600.0
WEEK_HOURS = 168.0


def fill(store: MessageStore) -> None:
    for _ in range(MESSAGES // 10):
        store.put([Message("T", b"x" * 200, number % 2) for number in range(10)])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_small(tmp_path / "store") as opened:
        fill(opened)
        yield opened


def lose_unit(store: MessageStore, queue_offset: int = 3) -> None:
    key = unit_key("T", 0, queue_offset)
    live_engine(store).write(KvBatch(deletes=[(UNITS, key)]))


class Paused:
    """What a job is given, with the pauses that it asked for."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def step(self, name: str, done: int, total: int) -> None: ...

    def report(self, done: int, total: int) -> None: ...

    def check(self) -> None: ...

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


def end_of_pass(made: StoreJobs) -> None:
    """The pass that was begun has ended."""
    made.jobs.wait(made.jobs.views("scrub")[0].job_id, 60)


def test_a_pass_by_hand_tells_what_it_verified(store: MessageStore) -> None:
    made = store_jobs_of(store)
    view = run(made.jobs, "scrub", pb.ScrubJob())
    assert view.state is JobState.DONE, view.error
    assert view.done == view.total == store.log.appended_offset
    assert view.numbers["records"] == view.numbers["units"] == RECORDS
    assert view.summary == "501 records and 501 units verified: no faults found"
    numbers = made.statistics()
    assert (numbers["scrub.records"], numbers["scrub.faults"]) == (RECORDS, 0)


def test_faults_are_logged_with_what_to_do(
    store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    for queue_offset in range(22):
        lose_unit(store, queue_offset)
    run(store_jobs_of(store).jobs, "scrub", pb.ScrubJob())
    lines = [each.message for each in caplog.records if each.name == "server.jobs.scrub"]
    assert len(lines) == 21
    assert lines[0].startswith("scrub: consume queue, topic 'T', queue 0, offset 0")
    assert lines[0].endswith("; rebuild the queue: kvcq job start rebuild T")
    assert "more faults are not logged" in lines[20]


def test_a_fault_is_a_finding_and_a_number(store: MessageStore) -> None:
    lose_unit(store)
    made = store_jobs_of(store)
    view = run(made.jobs, "scrub", pb.ScrubJob())
    assert (view.state, view.numbers["wrong_units"]) == (JobState.DONE, 1)
    assert [finding.queue_offset for finding in view.findings] == [3]
    assert made.statistics()["scrub.faults"] == 1
    only_log = run(made.jobs, "scrub", pb.ScrubJob(log_only=True))
    assert (only_log.findings, only_log.numbers["units"]) == ((), 0)


@pytest.mark.parametrize("rate", [-1, 1 << 50])
def test_a_rate_out_of_bounds_is_refused(store: MessageStore, rate: int) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        jobs_of(store).start("scrub", pb.ScrubJob(bytes_per_s=rate), {})
    assert refused.value.field == "bytes_per_s"


def test_it_reads_no_faster_than_it_may(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrub_module, "BURST_BYTES", 50_000)
    paused = Paused()
    made = store_jobs_of(store)
    made._scrub.work(pb.ScrubJob(bytes_per_s=100_000))(cast("Job", paused))
    pauses = paused.pauses
    assert len(pauses) > 1
    assert all(0.5 <= pause < 1.5 for pause in pauses)  # a burst, and the run that it ends in
    assert sum(pauses) <= store.log.appended_offset / 100_000


@pytest.mark.parametrize(
    ("grows", "share", "most"), [(True, 0.04, 0.24), (False, 0.04, 0.0), (True, 1.0, 0.0)]
)
def test_while_messages_come_in_it_takes_a_share_of_a_processor(
    store: MessageStore,
    monkeypatch: pytest.MonkeyPatch,
    grows: bool,
    share: float,
    most: float,
) -> None:
    monkeypatch.setattr(scrub_module, "BURST_BYTES", 50_000)
    made, paused = store_jobs_of(store), Paused()
    kind, worked_s, appended = made._scrub, count(0), count()
    if grows:
        monkeypatch.setattr(kind, "appended", lambda: next(appended))
    work = ScrubWork(
        kind.scrub_from(0),
        kind,
        store.queues.dispatched_offset,
        lambda _: 1e12,
        share=share,
        cpu_s=lambda: next(worked_s) * 0.01,  # so much between two looks at it
    )
    assert work.run(cast("Job", paused)).numbers["records"] == RECORDS
    assert len(paused.pauses) > 1
    assert paused.pauses == pytest.approx([most] * len(paused.pauses), abs=1e-6)


def test_the_server_scrubs_once_in_a_period(store: MessageStore) -> None:
    clock = FakeClock()
    made = store_jobs_of(store, clock)
    assert made.scrubbing.start_if_due()
    end_of_pass(made)
    [view] = made.jobs.views()
    assert (view.scheduled, view.state) == (True, JobState.DONE)
    numbers = made.statistics()
    assert numbers["scrub.completed_ms"] == clock.now_ms()
    assert numbers["scrub.pass_position"] == numbers["scrub.pass_end"] > 0
    assert not made.scrubbing.start_if_due()
    clock.advance(WEEK_HOURS * HOUR_S - 1)
    assert not made.scrubbing.start_if_due()
    clock.advance(1)
    lose_unit(store)
    assert made.scrubbing.start_if_due()
    end_of_pass(made)
    assert made.statistics()["scrub.completed_faults"] == 1


@pytest.mark.parametrize("ahead_hours", [WEEK_HOURS, 10 * WEEK_HOURS])
def test_a_clock_that_was_ahead_puts_no_pass_off(store: MessageStore, ahead_hours: float) -> None:
    clock = FakeClock()
    clock.jump(ahead_hours * HOUR_S)
    made = store_jobs_of(store, clock)
    assert made.scrubbing.start_if_due()
    end_of_pass(made)
    clock.jump(-ahead_hours * HOUR_S)
    assert made.scrubbing.start_if_due()
    end_of_pass(made)
    clock.jump(-10)
    assert not made.scrubbing.start_if_due(), "a small step begins no other"


def test_a_pass_of_its_own_and_one_by_hand_run_side_by_side(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    made = store_jobs_of(store)
    assert made.scrubbing.start_if_due()
    assert held.begun.wait(30)
    by_hand = made.jobs.start("scrub", pb.ScrubJob(), {}).job_id
    assert not made.scrubbing.start_if_due()  # the one that runs is enough
    held.go_on.set()
    assert made.jobs.wait(by_hand, 60).state is JobState.DONE
    made.jobs.wait(made.jobs.views()[1].job_id, 60)


class Held:
    """Every burst waits until the test says go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        monkeypatch.setattr(scrub_module, "BURST_BYTES", 20_000)
        advance = Scrub.advance

        def wait(scrub: Scrub, end: int, budget_bytes: int) -> bool:
            found = advance(scrub, end, budget_bytes)
            self.begun.set()
            assert self.go_on.wait(30)
            return found

        monkeypatch.setattr(Scrub, "advance", wait)


def test_a_restart_goes_on_where_a_pass_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    with open_small(tmp_path / "store") as store:
        fill(store)
        made = store_jobs_of(store, clock)
        with monkeypatch.context() as patch:
            held = Held(patch)
            assert made.scrubbing.start_if_due()
            assert held.begun.wait(30)
            made.scrubbing.close()
            [job] = made.jobs.views()
            made.jobs.cancel(job.job_id)
            held.go_on.set()
            assert made.jobs.wait(job.job_id, 30).state is JobState.CANCELLED
    with open_small(tmp_path / "store") as store:
        again = store_jobs_of(store, clock)
        position = again.statistics()["scrub.pass_position"]
        assert 0 < position < store.log.appended_offset
        assert again.scrubbing.start_if_due()
        end_of_pass(again)
        [rest, _] = again.jobs.views()
        assert rest.numbers["bytes"] == store.log.appended_offset - position
        assert again.statistics()["scrub.completed_ms"] == clock.now_ms()


def test_a_pass_that_somebody_cancels_is_left_until_the_next_is_due(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    made = store_jobs_of(store, clock)
    with monkeypatch.context() as patch:
        held = Held(patch)
        assert made.scrubbing.start_if_due()
        assert held.begun.wait(30)
        [job] = made.jobs.views()
        made.jobs.cancel(job.job_id)
        held.go_on.set()
        made.jobs.wait(job.job_id, 30)
    assert not made.scrubbing.start_if_due()
    assert made.statistics()["scrub.completed_ms"] == 0
    clock.advance(WEEK_HOURS * HOUR_S)
    assert made.scrubbing.start_if_due()
    end_of_pass(made)


def test_a_pass_that_failed_is_tried_again_an_hour_later(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    made = store_jobs_of(store, clock)

    def busy(*_: object) -> bool:
        raise StoreBusyError("stalled")

    with monkeypatch.context() as patch:
        patch.setattr(Scrub, "advance", busy)
        assert made.scrubbing.start_if_due()
        end_of_pass(made)
    [failed] = made.jobs.views()
    assert (failed.state, failed.error) == (JobState.FAILED, "stalled")
    assert not made.scrubbing.start_if_due()
    clock.advance(HOUR_S)
    assert made.scrubbing.start_if_due()
    end_of_pass(made)
    assert made.statistics()["scrub.completed_ms"] == clock.now_ms()


def test_a_pass_is_spread_over_most_of_its_period(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    made = store_jobs_of(store, clock)
    assert made.scrubbing.start_if_due()
    end_of_pass(made)
    monkeypatch.setattr(scrub_schedule, "LEAST_BYTES_PER_S", 1)
    period_s = WEEK_HOURS * HOUR_S
    rate = made.scrubbing._rate
    assert rate(10**12) == pytest.approx(10**12 / (0.9 * period_s))
    clock.advance(0.45 * period_s)
    assert rate(10**12) == pytest.approx(10**12 / (0.45 * period_s))
    assert rate(0) == 1  # a small log is not spread thinner
    clock.advance(period_s)
    assert rate(1 << 60) == made.scrubbing._bytes_per_s


@pytest.mark.parametrize("data", [b"", b"[]", b'{"other": 1}'])
def test_where_a_pass_was_is_no_matter_when_it_cannot_be_read(
    store: MessageStore, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    store.notes.put("scrub", data)
    made = store_jobs_of(store)
    assert "starting over" in caplog.text
    caplog.clear()
    (store.notes.directory / "scrub").write_bytes(data)  # without its checksum
    made = store_jobs_of(store)
    assert "starting over" in caplog.text
    assert made.statistics().get("scrub.pass_position") is None
    assert made.scrubbing.start_if_due()
    end_of_pass(made)


def test_an_empty_log_and_a_period_of_none_begin_nothing(tmp_path: Path) -> None:
    with open_small(tmp_path / "empty") as store:
        made = store_jobs_of(store, period_hours=0)
        made.start()
        assert not made.scrubbing.is_alive
        assert not made.scrubbing.start_if_due()
        made.close()


def test_its_thread_looks_now_and_then_and_ends(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(periodic_check, "CHECK_S", 0.001)
    made = store_jobs_of(store)
    ended = threading.Event()
    made.jobs.on_end(lambda _: ended.set())
    made.start()
    assert ended.wait(30)
    made.close()
    made.close()
    assert not made.scrubbing.is_alive
