"""server/jobs/rebuild.py: lost units come back while the store is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from kvcq.engine.protocol import KvBatch
from kvcq.tables.keys import UNITS, unit_prefix
from kvcq_client.pb.v1 import jobs_pb2 as pb
from migration.errors import JobCancelledError
from migration.jobs import JobState
from server.jobs.rebuild import Rebuild
from store.errors import InvalidArgumentError, UnknownQueueError, UnknownTopicError
from store.message import Message
from tests.support.rebuild import differences, live_engine
from tests.support.store_jobs import jobs_of, run
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from migration.jobs import Job
    from store.message_store import MessageStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_small(tmp_path / "store") as opened:
        for number in range(300):
            message = Message("T", b"x" * 200, number % 4, light_queues=("%LMQ%a",))
            opened.put([message, Message("U", b"x", 0)])
        yield opened


def lose(store: MessageStore, topic: str, *queue_ids: int) -> None:
    for queue_id in queue_ids:
        prefix = unit_prefix(topic, queue_id)
        live_engine(store).write(KvBatch(delete_ranges=[(UNITS, prefix, prefix + b"\xff" * 8)]))


@pytest.mark.parametrize(
    ("wanted", "lost", "units"),
    [
        (pb.RebuildJob(topic="T"), ("T", 0, 1, 2, 3), 300),
        (pb.RebuildJob(topic="T", queue_id=2), ("T", 2), 75),
        (pb.RebuildJob(topic="%LMQ%a"), ("%LMQ%a", 0), 300),
        (pb.RebuildJob(topic="%LMQ%a", queue_id=0), ("%LMQ%a", 0), 300),
    ],
)
def test_lost_units_come_back(
    store: MessageStore, wanted: pb.RebuildJob, lost: tuple[str, int], units: int
) -> None:
    lose(store, *lost)
    assert differences(store)
    view = run(jobs_of(store), "rebuild", wanted)
    assert view.state is JobState.DONE, view.error
    assert view.numbers == {"units_written": units, "damaged_records": 0}
    assert view.done == view.total == store.log.appended_offset
    assert differences(store) == []


def test_one_queue_leaves_the_others_alone(store: MessageStore) -> None:
    lose(store, "T", 1, 2)
    run(jobs_of(store), "rebuild", pb.RebuildJob(topic="T", queue_id=1))
    assert len(store.queues.read_units("T", 1, 0, 100)) == 75
    assert store.queues.read_units("T", 2, 0, 100) == []


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (pb.RebuildJob(), InvalidArgumentError),
        (pb.RebuildJob(topic="none"), UnknownTopicError),
        (pb.RebuildJob(topic="%LMQ%none"), UnknownTopicError),
        (pb.RebuildJob(topic="T", queue_id=4), UnknownQueueError),
        (pb.RebuildJob(topic="T", queue_id=-1), UnknownQueueError),
        (pb.RebuildJob(topic="%LMQ%a", queue_id=1), UnknownQueueError),
    ],
)
def test_what_is_not_there_is_refused(
    store: MessageStore, wanted: pb.RebuildJob, error: type[Exception]
) -> None:
    jobs = jobs_of(store)
    with pytest.raises(error):
        jobs.start("rebuild", wanted, {})
    assert jobs.views() == []


def test_it_ends_when_it_is_cancelled_and_can_be_started_again(store: MessageStore) -> None:
    lose(store, "T", 0)

    class Cancelled:
        reports = 0

        def step(self, name: str, done: int, total: int) -> None: ...

        def report(self, done: int, total: int) -> None:
            self.reports += 1

        def check(self) -> None: ...

        def pause(self, seconds: float) -> None:
            raise JobCancelledError("cancelled")

    running = Cancelled()
    with pytest.raises(JobCancelledError):
        Rebuild(store).work(pb.RebuildJob(topic="T"))(cast("Job", running))
    assert running.reports == 1
    run(jobs_of(store), "rebuild", pb.RebuildJob(topic="T"))
    assert differences(store) == []
