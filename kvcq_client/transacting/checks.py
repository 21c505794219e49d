"""Answers the server's question what became of transactions that nobody decided."""

from __future__ import annotations

import asyncio
import inspect
import logging
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING

from kvcq_client.errors import (
    ClosedError,
    HandshakeError,
    InvalidArgumentError,
    KvcqError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from kvcq_client.pb.v1 import transactions_pb2 as pb
from kvcq_client.transactions import TransactionCheck
from kvcq_client.transport import AsyncClosing, Blocking, Closing, blocking, in_background
from kvcq_client.values import Message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeAlias

    from kvcq_client.calls import Calls
    from kvcq_client.transport import Connection, Runner

logger = logging.getLogger(__name__)

#: True: commit it. False: roll it back. None: it is not known yet, ask again.
Answer: TypeAlias = "bool | None"
Check: TypeAlias = "Callable[[TransactionCheck], Answer | Awaitable[Answer]]"

#: Questions that are answered at a time; others wait in the stream.
_AT_ONCE = 8
#: Between two tries to reach a server, seconds.
_REST_S = 1.0
#: Whose check runs: where it closes them itself, that cannot wait for its end.
_asking: ContextVar[ChecksCore | None] = ContextVar("_asking", default=None)
#: Errors that a retry would not change.
_FINAL = (
    ClosedError,
    HandshakeError,
    InvalidArgumentError,
    PermissionDeniedError,
    UnauthenticatedError,
)


class ChecksCore:
    """Owned by the event loop of its connection."""

    def __init__(
        self,
        connection: Connection,
        calls: Calls,
        group: str,
        check: Check,
        closed: Callable[[ChecksCore], None],
    ) -> None:
        self._connection = connection
        self._calls = calls
        self._group = group
        self._check = check
        self._closed = closed
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._answering: set[asyncio.Task[None]] = set()
        self._task = in_background(self._run(), "kvcq-transaction-checks")
        #: Why checks are no longer answered.
        self.error: KvcqError | None = None

    async def close(self) -> None:
        """No more questions are taken; those that were are answered. Repeatable. Called by a check,
        it does not wait for the answers."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        if _asking.get() is not self:
            await asyncio.gather(*self._answering, return_exceptions=True)
        self._closed(self)

    async def _run(self) -> None:
        request = pb.WatchTransactionsRequest(group=self._group)
        watch = self._connection.transactions.WatchTransactions
        while True:
            try:
                async for question in self._connection.stream(watch, request):
                    await self._places.acquire()
                    task = asyncio.create_task(self._answer(_check_in(question)))
                    self._answering.add(task)
                    task.add_done_callback(self._answered)
            except _FINAL as error:
                self.error = error
                if not isinstance(error, ClosedError):
                    logger.error("checks of group %r are not answered: %s", self._group, error)
                return
            except KvcqError as error:
                logger.debug("checks of group %r are asked for again: %s", self._group, error)
            await self._connection.rest(_REST_S)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._places.release()
        self._answering.discard(task)

    async def _answer(self, question: TransactionCheck) -> None:
        _asking.set(self)
        try:
            if inspect.iscoroutinefunction(self._check):
                answer = await self._check(question)
            else:
                answer = await asyncio.to_thread(self._check, question)
                if inspect.isawaitable(answer):  # of a lambda, or of an object's `__call__`
                    answer = await answer
        except Exception:  # the caller's function may raise anything; the check is repeated
            logger.exception("the check of transaction %s failed", question.transaction_id)
            return
        try:
            if answer is True:
                await self._calls.commit_transaction(question.transaction_id)
            elif answer is False:
                await self._calls.roll_back_transaction(question.transaction_id)
            elif answer is not None:
                logger.error(
                    "the check of transaction %s returned %r: True commits, False rolls back, None "
                    "leaves it open",
                    *(question.transaction_id, answer),
                )
        except KvcqError as error:
            logger.warning(
                "the answer about transaction %s failed: %s", question.transaction_id, error
            )


def _check_in(question: pb.TransactionCheck) -> TransactionCheck:
    given = question.message
    message = Message(
        given.topic,
        given.body,
        queue_id=given.queue_id if given.HasField("queue_id") else None,
        tag=given.tag,
        keys=tuple(given.keys),
        light_queues=tuple(given.light_queues),
        properties=dict(given.properties) or None,
        flag=given.flag,
        born_time_ms=given.born_time_ms or None,
        ordering_key=given.ordering_key,
    )
    return TransactionCheck(question.transaction_id, message, question.checks)


class AsyncTransactionChecks(AsyncClosing):
    """Answers checks until it is closed. Made by `AsyncClient.answer_checks`."""

    def __init__(self, core: ChecksCore) -> None:
        self._core = core

    @property
    def error(self) -> KvcqError | None:
        """Why it answers no more; None while it does."""
        return self._core.error

    async def close(self) -> None:
        """Answer the questions under way, and take no more. Repeatable. A check may call this."""
        await self._core.close()


class TransactionChecks(Blocking[AsyncTransactionChecks], Closing):
    """Answers checks in threads of its own until it is closed. Made by `Client.answer_checks`."""

    def __init__(self, calls: AsyncTransactionChecks, run: Runner) -> None:
        super().__init__(calls, run)

    @property
    def error(self) -> KvcqError | None:
        """Why it answers no more; None while it does."""
        return self._calls.error

    close = blocking(AsyncTransactionChecks.close)
