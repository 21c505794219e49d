"""Transactions: each is begun and committed, one after the other, or 64 of them under way.

Beside them two puts, one after the other, which is what they are to the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_bench.report import Goal
from kvcq_client import Message
from tests.benchmarks.timing import CALLERS, Timed, by_callers
from tests.benchmarks.work import Work

if TYPE_CHECKING:
    from tests.benchmarks.systems.ours import KvcqClient

_LIMIT = {"limit_s": 1.5}
_ONE, _MANY = "transaction, one at a time, asyncio", "transaction, 64 under way"
_PUTS_ONE, _PUTS_MANY = "two puts, one at a time, asyncio", "two puts, 64 under way"
_TWO_CALLS = "it has two calls and two records as well"

PUTS_ONE = Work(_PUTS_ONE, "pairs/s", "two_puts", _LIMIT)
PUTS_MANY = Work(_PUTS_MANY, "pairs/s", "two_puts_by_callers", _LIMIT)
ONE = Work(
    _ONE,
    "transactions/s",
    "transaction",
    _LIMIT,
    [
        Goal(_ONE, 2_000, "a handler that keeps its database in step should hardly wait"),
        Goal(_ONE, 0.5, _TWO_CALLS, of_work=_PUTS_ONE),
    ],
)
MANY = Work(
    _MANY,
    "transactions/s",
    "transaction_by_callers",
    _LIMIT,
    [
        Goal(_MANY, 10_000, "a busy service commits as often as its database does"),
        Goal(_MANY, 0.5, _TWO_CALLS, of_work=_PUTS_MANY),
    ],
)


def _transactions(client: KvcqClient, callers: int, limit_s: float) -> Timed:
    message = Message("transactions", client.body, 0)

    async def run() -> Timed:
        async with client.asyncio() as calls:

            async def transact(_: int) -> None:
                begun = await calls.begin_transaction(message, group="benchmark")
                await calls.commit_transaction(begun)

            return await by_callers(transact, callers, limit_s)

    return client.run(run())


def _puts(client: KvcqClient, callers: int, limit_s: float) -> Timed:
    message = Message("transactions", client.body, 0)

    async def run() -> Timed:
        async with client.asyncio() as calls:

            async def put(_: int) -> None:
                await calls.put(message)
                await calls.put(message)

            return await by_callers(put, callers, limit_s)

    return client.run(run())


@ONE.of("kvcq")
def _(client: KvcqClient, limit_s: float) -> Timed:
    return _transactions(client, 1, limit_s)


@MANY.of("kvcq")
def _(client: KvcqClient, limit_s: float) -> Timed:
    return _transactions(client, CALLERS, limit_s)


@PUTS_ONE.of("kvcq")
def _(client: KvcqClient, limit_s: float) -> Timed:
    return _puts(client, 1, limit_s)


@PUTS_MANY.of("kvcq")
def _(client: KvcqClient, limit_s: float) -> Timed:
    return _puts(client, CALLERS, limit_s)
