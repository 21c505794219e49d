"""Rows of a task are stored once, whatever its attempts bring first. Real server, real client."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvcq_client import Client, Message, StoredBatch
from migration.spark.errors import PipelineError
from migration.spark.source.attempt import Attempt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.migration.spark.conftest import RunningService


@pytest.fixture(scope="module")
def client(service: RunningService) -> Iterator[Client]:
    with Client(service.target) as connected:
        yield connected


def rows_of(topic: str, numbers: Sequence[int]) -> list[Message]:
    """A row for each number; equal numbers make equal rows."""
    return [
        Message(
            topic,
            b"body %d" % (number // 3),
            tag="ab"[number % 2],
            keys=(f"k{number % 5}", "all"),
            light_queues=(f"%LMQ%{topic}-{number % 4}",) * 2 if number % 2 else (),
            properties={"p": str(number % 3)} if number % 3 else None,
            flag=number % 2,
        )
        for number in numbers
    ]


def attempt_of(client: Client, producer: str) -> Attempt:
    return Attempt(client, producer, has_queues=False, has_born_times=False)


def chunks_of(rows: list[Message], sizes: Sequence[int]) -> Iterator[list[Message]]:
    at = 0
    for size in sizes:
        yield rows[at : at + size]
        at += size
    while at < len(rows):
        yield rows[at : at + 3]
        at += 3


def stored(client: Client, topic: str) -> Counter[tuple[object, ...]]:
    found: Counter[tuple[object, ...]] = Counter()
    with client.consumer(topic) as consumer:
        for one in consumer.to_end():
            found[one.body, one.tag, one.keys, one.light_queues, one.properties.get("p")] += 1
    return found


def sent(rows: list[Message]) -> Counter[tuple[object, ...]]:
    return Counter(
        (
            row.body,
            row.tag,
            tuple(row.keys),
            tuple(dict.fromkeys(row.light_queues)),
            (row.properties or {}).get("p"),
        )
        for row in rows
    )


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    numbers=st.lists(st.integers(0, 12), min_size=1, max_size=30),
    turns=st.lists(st.integers(0, 2), max_size=40),
    sizes=st.lists(st.integers(1, 7), max_size=8),
    seed=st.integers(0, 1000),
)
@pytest.mark.slow
def test_attempts_in_any_order_and_at_the_same_time_store_each_row_once(
    client: Client, numbers: list[int], turns: list[int], sizes: list[int], seed: int
) -> None:
    topic = f"rows-{uuid.uuid4().hex[:12]}"
    producer = f"job.{uuid.uuid4().hex[:12]}"
    rows = rows_of(topic, numbers)
    chance = random.Random(seed)
    attempts = []
    for number in range(3):
        shuffled = chance.sample(rows, len(rows)) if number else rows
        attempts.append((attempt_of(client, producer), chunks_of(shuffled, sizes[number:])))
    # Some go a part of the way, in turns, and are killed; the last one ends.
    for turn in turns:
        one, chunks = attempts[turn]
        chunk = next(chunks, None)
        if chunk is not None:
            one.put(chunk)
    last, chunks = attempts[2]
    for chunk in chunks:
        last.put(chunk)
    assert last.finish(may_have_run_before=True) == len(rows)
    assert stored(client, topic) == sent(rows)


def test_rows_that_are_others_each_time_are_refused(client: Client) -> None:
    topic, producer = "others", f"job.{uuid.uuid4().hex[:12]}"
    first = attempt_of(client, producer)
    first.put(rows_of(topic, [1, 2, 3]))
    second = attempt_of(client, producer)
    second.put(rows_of(topic, [30, 31, 32, 33]))
    with pytest.raises(PipelineError, match="at least 3 rows that this one does not have"):
        second.finish(may_have_run_before=True)
    third = attempt_of(client, producer)
    third.put(rows_of(topic, [1, 2, 3]))
    with pytest.raises(PipelineError, match="at least 4 rows"):
        third.finish(may_have_run_before=True)


def test_equal_rows_for_different_queues_are_told_apart(client: Client) -> None:
    client.create_topic("queues", 2)
    producer = f"job.{uuid.uuid4().hex[:12]}"
    rows = [Message("queues", b"same", queue_id=number % 2) for number in range(6)]
    rows += [Message("queues", b"same")] * 2

    def attempt() -> Attempt:
        return Attempt(client, producer, has_queues=True, has_born_times=True)

    first = attempt()
    first.put(rows[:5])
    second = attempt()
    second.put(rows[1:6])
    second.put([rows[0], *rows[6:]])
    assert second.finish(may_have_run_before=True) == len(rows)
    with client.consumer("queues") as consumer:
        assert len(list(consumer.to_end())) == len(rows)


def test_what_is_stored_under_a_number_is_read_back(client: Client) -> None:
    producer = f"job.{uuid.uuid4().hex[:12]}"
    client.put_numbered(
        [Message("read", b"a"), Message("read", b"b")], producer_id=producer, sequence=0
    )
    batch = client.stored_batch(producer, 0)
    assert isinstance(batch, StoredBatch)
    assert [message.body for message in batch.messages] == [b"a", b"b"]
    assert not batch.is_partial
    assert client.stored_batch(producer, 1) is None
    assert client.stored_batch(producer, 2) is None
    client.delete_topic("read")
    again = client.stored_batch(producer, 0)
    assert again is not None
    assert [message.body for message in again.messages] == [b"a", b"b"]
