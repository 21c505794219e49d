"""Transactions of both clients, against a served store."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kvcq_client import (
    AsyncClient,
    Client,
    InvalidArgumentError,
    Message,
    NotFoundError,
    NotPossibleError,
    ResourceExhaustedError,
    TransactionCheck,
    UnavailableError,
)
from store.held import halves
from tests.support.until import until, wait_until

if TYPE_CHECKING:
    from kvcq_client import AsyncTransactionChecks, TransactionChecks
    from tests.support.serving import Served

pytestmark = pytest.mark.integration


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits before a transaction is asked about."""
    monkeypatch.setattr(halves, "FIRST_CHECK_MS", 0)


async def bodies(client: AsyncClient, topic: str = "orders") -> list[bytes]:
    try:
        pulled = await client.pull(topic, 0, 0)
    except NotFoundError:
        return []
    return [message.body for message in pulled.messages]


ORDER = Message("orders", b"one", queue_id=0, tag="t", keys=("k",), properties={"colour": "red"})


async def test_a_block_that_ends_delivers_and_one_that_raises_does_not(
    client: AsyncClient,
) -> None:
    async with client.transaction(ORDER, group="shop") as transaction:
        assert await bodies(client) == []
        (one,) = await client.open_transactions()
        assert one.transaction_id == transaction.id
        assert (one.group, one.topic, one.checks) == ("shop", "orders", 0)
    assert await bodies(client) == [b"one"]
    with pytest.raises(ZeroDivisionError):
        async with client.transaction(ORDER, group="shop") as transaction:
            raise ZeroDivisionError
    assert await bodies(client) == [b"one"]
    assert await client.open_transactions() == []
    await client.roll_back_transaction(transaction.id)
    with pytest.raises(NotPossibleError) as refused:
        await client.commit_transaction(transaction.id)
    assert refused.value.reason == "TRANSACTION_ENDED"
    assert refused.value.metadata["outcome"] == "rolled back"


async def test_a_block_may_decide_before_it_ends(client: AsyncClient) -> None:
    async with client.transaction(ORDER, group="shop") as transaction:
        await transaction.roll_back()
    async with client.transaction(ORDER, group="shop") as transaction:
        await transaction.commit()
        assert await bodies(client) == [b"one"]
    assert await bodies(client) == [b"one"]


async def test_a_rollback_that_failed_is_tried_again_at_the_end(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: object, transaction_id: str) -> None:
        raise UnavailableError(transaction_id)

    async def try_to_roll_back() -> None:
        async with client.transaction(ORDER, group="shop") as transaction:
            with suppress(UnavailableError), monkeypatch.context() as patch:
                patch.setattr(AsyncClient, "roll_back_transaction", fail)
                await transaction.roll_back()

    await try_to_roll_back()
    assert await client.open_transactions() == []
    assert await bodies(client) == []
    monkeypatch.setattr(AsyncClient, "roll_back_transaction", fail)
    with pytest.raises(UnavailableError):
        await try_to_roll_back()
    assert await bodies(client) == []


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("answer", [True, False])
async def test_a_producer_is_asked_about_what_nobody_decided(
    client: AsyncClient, answer: bool
) -> None:
    asked: list[TransactionCheck] = []

    def check(question: TransactionCheck) -> bool | None:
        asked.append(question)
        return answer

    one = await client.begin_transaction(ORDER, group="shop")
    async with client.answer_checks("shop", check):
        await until(lambda: len(asked) == 1)
        while await client.open_transactions():
            await asyncio.sleep(0.01)
    (question,) = asked
    assert (question.transaction_id, question.checks) == (one, 0)
    assert replace(question.message, born_time_ms=None) == ORDER
    assert await bodies(client) == [b"one"] * answer


@pytest.mark.usefixtures("at_once")
async def test_what_a_check_returns_is_awaited(client: AsyncClient) -> None:
    """A lambda, and an object with `__call__`, are no coroutine functions."""

    async def commit(_: TransactionCheck) -> bool:
        return True

    class Commits:
        async def __call__(self, question: TransactionCheck) -> bool:
            return await commit(question)

    for check in (lambda question: commit(question), Commits()):
        await client.begin_transaction(ORDER, group="shop")
        async with client.answer_checks("shop", check):
            while await client.open_transactions():
                await asyncio.sleep(0.01)
    assert await bodies(client) == [b"one"] * 2


@pytest.mark.usefixtures("at_once")
async def test_a_check_that_fails_or_knows_nothing_leaves_it_open_and_counts(
    client: AsyncClient,
) -> None:
    count = 0

    async def check(question: TransactionCheck) -> bool | None:
        nonlocal count
        count += 1
        if question.message.body == b"one":
            raise ZeroDivisionError
        return None

    await client.begin_transaction(ORDER, group="shop")
    await client.begin_transaction(Message("orders", b"two"), group="shop")
    async with client.answer_checks("shop", check):
        await until(lambda: count == 2)
        while {each.checks for each in await client.open_transactions("shop")} != {1}:
            await asyncio.sleep(0.01)


@pytest.mark.usefixtures("at_once")
async def test_another_producer_of_the_group_answers_for_one_that_is_gone(
    served: Served, client: AsyncClient
) -> None:
    async with AsyncClient(served.target) as first:
        checks = first.answer_checks("shop", lambda _: None)
        await first.begin_transaction(ORDER, group="shop")
        await checks.close()
    assert await bodies(client) == []
    async with client.answer_checks("shop", lambda _: True):
        while not await bodies(client):
            await asyncio.sleep(0.01)


@pytest.mark.usefixtures("at_once")
async def test_a_check_may_close_its_checks(served: Served, client: AsyncClient) -> None:
    closed: list[bool] = []
    found: list[AsyncTransactionChecks] = []

    async def check(_: TransactionCheck) -> bool:
        await found[0].close()
        closed.append(True)
        return True

    await client.begin_transaction(ORDER, group="shop")
    found.append(client.answer_checks("shop", check))
    await until(lambda: closed)
    while await client.open_transactions():
        await asyncio.sleep(0.01)

    def blocking_check() -> None:
        with Client(served.target) as blocking:
            begun: list[TransactionChecks] = []

            def check(_: TransactionCheck) -> bool:
                wait_until(lambda: begun)
                begun[0].close()
                return True

            blocking.begin_transaction(ORDER, group="shop")
            begun.append(blocking.answer_checks("shop", check))
            wait_until(lambda: not blocking.open_transactions())

    await asyncio.to_thread(blocking_check)
    assert await bodies(client) == [b"one"] * 2


async def test_limits_and_wrong_ids_have_clear_errors(served: Served, client: AsyncClient) -> None:
    with pytest.raises(InvalidArgumentError):
        await client.commit_transaction("nothing")
    with pytest.raises(InvalidArgumentError):
        await client.begin_transaction(ORDER, group="")
    with pytest.raises(InvalidArgumentError, match="immunity_s: 25 h is outside 0 to 1 d"):
        await client.begin_transaction(ORDER, group="shop", immunity_s=90_000)
    async with client.transaction(ORDER, group="shop") as begun:
        assert repr(begun) == f"<transaction {begun.id} of group 'shop'>"
    one = await client.begin_transaction(ORDER, group="shop")
    store = served.store
    await asyncio.to_thread(store.delete_topic, "orders")
    with pytest.raises(NotPossibleError, match="its topic was deleted"):
        await client.commit_transaction(one)
    store.reconfigure(replace(store.config, max_open_transactions_of_group=1))
    await client.begin_transaction(ORDER, group="shop")
    with pytest.raises(ResourceExhaustedError, match="max_open_transactions"):
        await client.begin_transaction(ORDER, group="shop")


@pytest.mark.usefixtures("at_once")
async def test_blocking_code_does_the_same(served: Served) -> None:
    def run() -> None:
        with Client(served.target) as client:
            with client.transaction(ORDER, group="shop") as transaction:
                assert transaction.id
            with (
                pytest.raises(ZeroDivisionError),
                client.transaction(ORDER, group="shop") as transaction,
            ):
                raise ZeroDivisionError
            client.begin_transaction(ORDER, group="shop")
            with client.answer_checks("shop", lambda question: question.message.body == b"one"):
                wait_until(lambda: not client.open_transactions())
            assert len(client.pull("orders", 0, 0).messages) == 2

    await asyncio.to_thread(run)
