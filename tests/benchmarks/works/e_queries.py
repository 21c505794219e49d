"""A query by key and a search by time, one at a time, among messages that each have a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_bench.report import Goal
from kvcq_client import Boundary, Message
from tests.benchmarks.timing import BATCH, Timed, batches, one_at_a_time
from tests.benchmarks.work import Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.benchmarks.systems.ours import KvcqClient

_BY_KEY, _BY_TIME = "query by key, among a million", "search by time, among a million"
_ARGUMENTS = {"count": 1_000_000, "limit_s": 1.5}
_WAITS = "a person waits for the answer"

BY_KEY = Work(
    _BY_KEY,
    "queries/s",
    "query_by_key",
    _ARGUMENTS,
    [Goal(_BY_KEY, 10, _WAITS, figure="p99", at_most=True)],
    warm_up=False,
)
BY_TIME = Work(
    _BY_TIME,
    "searches/s",
    "search_by_time",
    _ARGUMENTS,
    [Goal(_BY_TIME, 10, _WAITS, figure="p99", at_most=True)],
    warm_up=False,
)


def _asked(
    client: KvcqClient, count: int, limit_s: float, ask: Callable[[str, int], object]
) -> Timed:
    """What `ask` does with the key and the time of one message after the other, all over them."""
    client.blocking.create_topics({"keyed": 1})
    stored = client.blocking.pull("keyed", 0, 0, max_messages=1).messages
    if not stored:
        numbers = batches(range(count), BATCH)
        lists = (
            [Message("keyed", client.body, 0, keys=(f"key-{number}",)) for number in part]
            for part in numbers
        )
        client.send(lists, float("inf"))
        stored = client.blocking.pull("keyed", 0, 0, max_messages=1).messages
    time_ms, asked = stored[0].store_time_ms, iter(range(1, count * count, count // 3 + 1))

    def one() -> None:
        at = next(asked) % count
        if not ask(f"key-{at}", time_ms + at % 1000) and at:
            raise RuntimeError(f"message {at} was not found")

    return one_at_a_time(one, limit_s)


@BY_KEY.of("kvcq")
def _(client: KvcqClient, count: int, limit_s: float) -> Timed:
    return _asked(
        client, count, limit_s, lambda key, _: client.blocking.query("keyed", key).messages
    )


@BY_TIME.of("kvcq")
def _(client: KvcqClient, count: int, limit_s: float) -> Timed:
    def search(_: str, time_ms: int) -> bool:
        return client.blocking.search_time("keyed", 0, time_ms, Boundary.LOWER) >= 0

    return _asked(client, count, limit_s, search)
