"""server/jobs/compact.py on a real store, and on one with two sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from kvcq_client.pb.v1 import jobs_pb2 as pb
from migration.errors import JobCancelledError
from migration.jobs import JobState
from server.jobs.compact import Compact
from store.errors import InvalidArgumentError, UnknownTopicError
from store.message import Message
from tests.support.store_jobs import jobs_of
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from migration.jobs import Job
    from server.jobs import Jobs
    from store.message_store import MessageStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_small(tmp_path / "store") as opened:
        for topic in ("gone", "kept"):
            opened.put([Message(topic, b"x" * 10, 0, keys=("k",)) for _ in range(500)])
            opened.flush()
        yield opened


def run(store: MessageStore, wanted: pb.CompactJob) -> Jobs:
    jobs = jobs_of(store)
    jobs.wait(jobs.start("compact", wanted, {}).job_id, 30)
    return jobs


def test_what_was_deleted_gives_its_space_back(store: MessageStore) -> None:
    store.delete_topic("gone")
    store.flush()
    [view] = run(store, pb.CompactJob()).views()
    assert view.state is JobState.DONE, view.error
    assert view.numbers["bytes_after"] < view.numbers["bytes_before"]
    assert view.done == view.total == 1000
    assert len(store.pull("kept", 0, 0).records) == 32


@pytest.mark.parametrize(
    ("wanted", "families"),
    [
        (pb.CompactJob(), ["default", "index"]),
        (pb.CompactJob(family="offset"), ["offset"]),
        (pb.CompactJob(family="default", topic="kept"), ["default"]),
    ],
)
def test_a_part_is_compacted(
    store: MessageStore,
    wanted: pb.CompactJob,
    families: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = store.queues._engine  # type: ignore[attr-defined]
    seen: list[tuple[str, bytes | None]] = []
    compact = engine.compact

    def noting(family: str, start: bytes | None, end: bytes | None, progress: object) -> None:
        seen.append((family, start))
        compact(family, start, end, progress)

    monkeypatch.setattr(engine, "compact", noting)
    [view] = run(store, wanted).views()
    assert view.state is JobState.DONE, view.error
    assert [family for family, _ in seen] == families
    assert all((start is not None and b"kept" in start) == bool(wanted.topic) for _, start in seen)


def test_what_is_not_there_is_refused_before_anything_begins(store: MessageStore) -> None:
    jobs = jobs_of(store)
    with pytest.raises(InvalidArgumentError) as refused:
        jobs.start("compact", pb.CompactJob(family="units"), {})
    assert refused.value.field == "family"
    for topic in ("none", "%LMQ%none"):
        with pytest.raises(UnknownTopicError):
            jobs.start("compact", pb.CompactJob(topic=topic), {})
    assert jobs.views() == []


def test_a_cancelled_compaction_ends_between_two_pieces(store: MessageStore) -> None:
    work = Compact(store).work(pb.CompactJob())

    class Cancelled:
        shares: list[int] = []  # noqa: RUF012 - one object

        def step(self, name: str, done: int, total: int) -> None: ...

        def report(self, done: int, total: int) -> None:
            self.shares.append(done)

        def check(self) -> None:
            raise JobCancelledError("cancelled")

        def pause(self, seconds: float) -> None: ...

    with pytest.raises(JobCancelledError):
        work(cast("Job", Cancelled()))
    assert Cancelled.shares == [500]  # the first family of two
