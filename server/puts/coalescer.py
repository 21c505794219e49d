"""Joins single puts that arrive together into one append.

Messages are gathered until the loop's next turn and appended in one call, so that the lock, the
dispatch and, in SYNC mode, the flush are paid once for all of them.

gRPC reads calls off the wire one by one, each in some turns of the loop, so of 64 concurrent calls
hardly two arrive in the same turn. So while calls arrive together, messages are gathered for
longer, until no other has arrived for some turns. Their responses then leave together, which saves
both sides more than the append does: 64 unary calls of one client become 1.4 times as fast, 8
become 1.1 times. A single caller is not delayed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from server.puts.gathering import Gathering
from server.wire import INLINE_PARTS, parts_of
from store.errors import (
    AppendWouldWaitError,
    FlushTimeoutError,
    InvalidArgumentError,
    UnknownQueueError,
    UnknownTopicError,
)

if TYPE_CHECKING:
    from server.puts.appender import Appender
    from server.puts.durability import Durability
    from store.consume_queue import DispatchRequest
    from store.message import Appended, Message
    from store.message_store import MessageStore

#: Messages of one append, and bytes of their bodies: a batch lies in one segment or in none.
MAX_MESSAGES = 256
MAX_BYTES = 1 << 20

#: Messages of a rejected append that are appended one by one in one turn of the loop.
_ALONE_A_TURN = 32

#: At least this many of the puts that a flush made durable are answered in a turn of the loop.
_ANSWERED_A_TURN = 8

#: A put's place in the log, and its store time in ms since 1970.
PutResult = tuple["DispatchRequest", int]
_Waiting = tuple["Message", asyncio.Future[PutResult]]
_Settled = tuple[list[_Waiting], list[PutResult], BaseException | None]

# Errors of one message: the other messages of the batch must still be stored.
_ONE_MESSAGE = (InvalidArgumentError, UnknownTopicError, UnknownQueueError)


class PutCoalescer:
    """Gathers single puts. Owned by the event loop's thread."""

    def __init__(
        self,
        store: MessageStore,
        appender: Appender,
        durability: Durability,
        loop: asyncio.AbstractEventLoop,
        flush_timeout_s: float,
    ) -> None:
        self._store = store
        self._appender = appender
        self._durability = durability
        self._loop = loop
        self._flush_timeout_s = flush_timeout_s
        self._waiting: Gathering[_Waiting] = Gathering(loop, self._append_waiting)
        self._waiting_bytes = 0
        self._waiting_parts = 0
        self._durable: deque[_Settled] = deque()  # to be answered
        self._is_answering = False
        self._tasks: set[asyncio.Task[None]] = set()  # appends that would have kept the loop

    def put(self, message: Message) -> asyncio.Future[PutResult]:
        """Resolves when the message is acknowledged; raises what the store raised for it.

        If the caller is cancelled before the append, no message is stored.
        """
        future: asyncio.Future[PutResult] = self._loop.create_future()
        parts = parts_of(message)
        is_full = (
            len(self._waiting) >= MAX_MESSAGES
            or self._waiting_bytes + len(message.body) > MAX_BYTES
            or self._waiting_parts + parts > INLINE_PARTS
        )
        if is_full and self._waiting:
            self._waiting.add_to_next((message, future))
        else:
            self._waiting.add((message, future))
        self._waiting_bytes += len(message.body)
        self._waiting_parts += parts
        return future

    def put_now(self, message: Message) -> PutResult | None:
        """Append it at once; None, and nothing done, if that would have to wait.

        For a store that acknowledges before data is durable. The message becomes visible in the
        loop's next turn: the response leaves in this one, so the client continues while units are
        derived. Requests sent after the response are processed after that. Raises like `put`.
        """
        self._loop.call_soon(self._store.dispatch_appended)  # first: also when Ctrl-C ends this
        try:
            appended = self._store.append([message], separate=True, wait=False, dispatch=False)
        except AppendWouldWaitError:
            return None
        except InvalidArgumentError as error:
            raise of_single_put(error) from None
        return appended.requests[0], appended.store_time_ms

    def _append_waiting(self, waiting: list[_Waiting]) -> None:
        self._waiting_bytes = self._waiting_parts = 0
        batch = [one for one in waiting if not one[1].cancelled()]
        if batch:
            self._append(batch)

    def _append(self, batch: list[_Waiting]) -> None:
        try:
            # Not one batch: a crash may leave the first of them.
            appended = self._store.append(
                [message for message, _ in batch], separate=True, wait=False
            )
        except AppendWouldWaitError:
            task = self._loop.create_task(self._append_in_thread(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        except Exception as error:  # noqa: BLE001 - whatever it is, its callers must hear it
            self._refuse(batch, error)
        else:
            self._settle(batch, appended)

    async def _append_in_thread(self, batch: list[_Waiting]) -> None:
        try:
            appended = await self._appender.waiting([message for message, _ in batch])
        except Exception as error:  # noqa: BLE001 - whatever it is, its callers must hear it
            self._refuse(batch, error)
        else:
            self._settle(batch, appended)

    def _refuse(self, batch: list[_Waiting], error: Exception) -> None:
        """Nothing was written. Append the messages one by one, a few in each turn, to find the bad
        one."""
        if len(batch) == 1 or not isinstance(error, _ONE_MESSAGE):
            _fail(batch, error)
            return
        for begin in range(0, len(batch), _ALONE_A_TURN):
            self._loop.call_soon(self._append_alone, batch[begin : begin + _ALONE_A_TURN])

    def _append_alone(self, batch: list[_Waiting]) -> None:
        for one in batch:
            self._append([one])

    def _settle(self, batch: list[_Waiting], appended: Appended) -> None:
        results = [(request, appended.store_time_ms) for request in appended.requests]
        if self._durability.is_durable(appended.end_offset):
            _resolve(batch, results, None)
            return
        end_offset, timeout_s = appended.end_offset, self._flush_timeout_s
        timer = self._loop.call_later(
            timeout_s, lambda: _resolve(batch, results, FlushTimeoutError(end_offset, timeout_s))
        )

        def flushed(error: BaseException | None) -> None:
            timer.cancel()
            self._durable.append((batch, results, error))
            if not self._is_answering:
                self._answer_some()

        self._durability.when_durable(end_offset, flushed)

    def _answer_some(self) -> None:
        """Answer a part of a flush at a time, so that the first callers can send their next puts
        while other responses are built."""
        answered = 0
        while self._durable and answered < _ANSWERED_A_TURN:
            batch, results, error = self._durable.popleft()
            _resolve(batch, results, error)
            answered += len(batch)
        self._is_answering = answered > 0
        if answered:
            self._loop.call_soon(self._answer_some)


def _resolve(batch: list[_Waiting], results: list[PutResult], error: BaseException | None) -> None:
    if error is not None:
        _fail(batch, error)
        return
    for (_, future), result in zip(batch, results, strict=True):
        if not future.done():
            future.set_result(result)


def _fail(batch: list[_Waiting], error: BaseException) -> None:
    if isinstance(error, InvalidArgumentError):
        error = of_single_put(error)
    for _, future in batch:
        if not future.done():
            future.set_exception(error)


def of_single_put(error: InvalidArgumentError) -> InvalidArgumentError:
    """The same error for a caller that sent a single message: the field has no index."""
    return InvalidArgumentError(error.field.replace("messages[0]", "message", 1), error.reason)
