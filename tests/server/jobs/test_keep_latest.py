"""server/jobs/keep_latest.py: the queues of a topic, a light queue, and light queues by prefix."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from kvcq_client.pb.v1 import jobs_pb2 as pb
from migration.jobs import JobState
from server.jobs import periodic_check
from server.jobs.keep_latest import KeepLatest
from store.errors import InvalidArgumentError, UnknownTopicError
from store.message import Message
from tests.support.fake_clock import FakeClock
from tests.support.store_jobs import jobs_of, run, store_jobs_of
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store.message_store import MessageStore

LIGHT = ("%LMQ%state-a", "%LMQ%state-b", "%LMQ%other")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_small(tmp_path / "store") as opened:
        for number in range(12):
            keys = (f"k{number % 2}",)
            opened.put([Message("T", b"x", number % 4, keys=keys, light_queues=LIGHT)])
        yield opened


def seen(store: MessageStore, topic: str, queue_id: int = 0) -> int:
    return len(store.pull(topic, queue_id, 0).records)


def test_all_queues_of_a_topic(store: MessageStore) -> None:
    view = run(jobs_of(store), "keep_latest", pb.KeepLatestJob(topic="T"))
    assert view.state is JobState.DONE, view.error
    assert view.numbers == {"queues": 4, "messages": 12, "hidden_messages": 8}
    assert [seen(store, "T", queue_id) for queue_id in range(4)] == [1, 1, 1, 1]
    assert seen(store, LIGHT[0]) == 12


@pytest.mark.parametrize(
    ("topic", "left"), [(LIGHT[0], [2, 12, 12]), ("%LMQ%state-*", [2, 2, 12]), ("%LMQ%*", [2] * 3)]
)
def test_light_queues(store: MessageStore, topic: str, left: list[int]) -> None:
    view = run(jobs_of(store), "keep_latest", pb.KeepLatestJob(topic=topic))
    assert view.state is JobState.DONE, view.error
    assert [seen(store, name) for name in LIGHT] == left


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        ("", InvalidArgumentError),
        ("T*", InvalidArgumentError),
        ("none", UnknownTopicError),
        ("%LMQ%none", UnknownTopicError),
    ],
)
def test_what_is_not_there_is_refused(
    store: MessageStore, topic: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        jobs_of(store).start("keep_latest", pb.KeepLatestJob(topic=topic), {})


def test_a_light_queue_that_is_deleted_meanwhile_is_passed_over(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = store.list_light_queues

    def then_delete(prefix: str, after: str | None, limit: int) -> list[str]:
        found = names(prefix, after, limit)
        if after is None:
            store.delete_topic(LIGHT[0])
        return found

    monkeypatch.setattr(store, "list_light_queues", then_delete)
    view = run(jobs_of(store), "keep_latest", pb.KeepLatestJob(topic="%LMQ%state-*"))
    assert view.state is JobState.DONE, view.error
    assert view.numbers["queues"] == 1
    assert KeepLatest.name == view.kind


def test_without_a_name_all_topics_that_keep_the_latest(store: MessageStore) -> None:
    store.put([Message("U", b"x", 0, keys=("k",)) for _ in range(3)])
    store.put([Message("V", b"x", 0, keys=("k",)) for _ in range(3)])
    for name in ("U", "V"):
        store.keep(name, latest=True)
    view = run(jobs_of(store), "keep_latest", pb.KeepLatestJob())
    assert view.state is JobState.DONE, view.error
    assert (seen(store, "T"), seen(store, "U"), seen(store, "V")) == (3, 1, 1)
    store.keep("V", latest=False)
    store.put([Message("V", b"x", 0, keys=("k",)) for _ in range(3)])
    run(jobs_of(store), "keep_latest", pb.KeepLatestJob())
    assert seen(store, "V") == 4  # what is hidden stays so


def test_they_are_looked_through_once_in_a_period(store: MessageStore) -> None:
    clock = FakeClock()
    made = store_jobs_of(store, clock)
    assert not made.latest.start_if_due()  # there is none
    store.keep("T", latest=True)
    assert not made.latest.start_if_due()
    clock.advance(24 * 3600)
    assert made.latest.start_if_due()
    [job] = made.jobs.views()
    assert job.scheduled
    assert made.jobs.wait(job.job_id, 60).numbers["hidden_messages"] == 8
    assert not made.latest.start_if_due()
    again = store_jobs_of(store, clock)  # as after a restart
    assert not again.latest.start_if_due()
    clock.advance(24 * 3600)
    assert again.latest.start_if_due()
    again.jobs.wait(again.jobs.views()[0].job_id, 60)
    again.close()


def test_a_clock_that_was_ahead_puts_nothing_off(store: MessageStore) -> None:
    store.keep("T", latest=True)
    clock = FakeClock()
    clock.jump(1000 * 3600)
    made = store_jobs_of(store, clock)
    for ahead_hours in (0, 1000):
        clock.jump(-ahead_hours * 3600)
        assert made.latest.start_if_due()
        made.jobs.wait(made.jobs.views()[0].job_id, 60)
        assert not made.latest.start_if_due()
        clock.jump(-10)
        assert not made.latest.start_if_due(), "a small step begins no other"
    made.close()


def test_its_schedule_begins_and_ends_with_the_server(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(periodic_check, "CHECK_S", 0.001)
    store.keep("T", latest=True)
    made = store_jobs_of(store, period_hours=0)
    ended = threading.Event()
    made.jobs.on_end(lambda _: ended.set())
    made.start()
    assert ended.wait(30)
    made.close()
    made.close()
    assert not made.latest.is_alive
