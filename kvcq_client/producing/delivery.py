"""Carries batches to the server: in order, each stored once, whatever happens on the way.

Messages are numbered in the order they were sent; a batch carries the number of its first one,
and the server stores it only if it follows the one before. So a batch that was lost holds back
those behind it, and one that comes twice is answered twice and stored once.

On one stream up to `window` batches are under way. When one of them is not stored, those behind
it are refused too; the answers of all are awaited, then what has no outcome goes out again, on a
new stream. The first batch of a stream goes alone: a server that has just started does not know
which number is next, and must not take a later one for it.

What is refused for good:

* A single message (its topic is not there, its body too large): it is taken out of its batch and
  gets the error; the numbers behind it move up.
* A whole batch (the disk is full): all of it gets the error; the numbers behind it move up.
* A batch whose number has other messages, of an earlier run under this name: so do all behind it,
  until somebody gives the producer another name, or the messages that it sent before.
* All that waits, when TLS keeps the client from ever reaching the server: no time helps there.
* A batch that failed with the store: it may be in the log. It gets the error, and so do those sent
  behind it; the producer goes on under another name, since their numbers may be taken.
* A batch that was sent, and not acknowledged in time. Whether it is stored is not known, nor
  whether those sent behind it are. All of these get the error, and the producer goes on under
  another name, so that the server does not wait for their numbers.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING

import grpc

from kvcq_client.errors import (
    ClosedError,
    DeliveryTimeoutError,
    HandshakeError,
    InvalidArgumentError,
    KvcqError,
    NotFoundError,
    NumberPassedError,
    NumberReusedError,
    ResourceExhaustedError,
    UnavailableError,
)
from kvcq_client.format import put_stream_request
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.producing.batch import Unasked
from kvcq_client.transport import (
    STREAM_OVER,
    Backoff,
    from_batch_error,
    from_rpc,
    may_pass,
    write_request,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcq_client.format import Outgoing
    from kvcq_client.producing.accumulator import Accumulator
    from kvcq_client.producing.batch import Batch
    from kvcq_client.producing.config import ProducerConfig
    from kvcq_client.transport import Connection

    Call = grpc.aio.StreamStreamCall[bytes, pb.PutStreamResponse]

logger = logging.getLogger(__name__)

_OUT_OF_SEQUENCE = "OUT_OF_SEQUENCE"
# Refused before anything was written: the number is free.
_NOTHING_WRITTEN = (
    InvalidArgumentError,
    NotFoundError,
    NumberPassedError,
    NumberReusedError,
    ResourceExhaustedError,
)
_MESSAGE_INDEX = re.compile(r"messages\[(\d+)\]")


class Delivery:
    """The sending side of one producer. Owned by the event loop of its connection."""

    def __init__(
        self, connection: Connection, accumulator: Accumulator, config: ProducerConfig
    ) -> None:
        self._connection = connection
        self._accumulator = accumulator
        self._config = config
        self._epoch = 0  # of the producer's name
        self._next_sequence = config.first_sequence
        # In order: first those that have a number (they were sent before), then the others.
        self._waiting: deque[Batch] = deque()
        self._changed = asyncio.Event()
        self._closing = False
        self._last_error: KvcqError | None = None
        # Of the present stream.
        self._flying: deque[Batch] = deque()  # sent, in order, no answer yet
        self._again: list[Batch] = []  # answered: not stored, to be sent again
        self._proven = False  # a batch was stored: the server knows the next number
        self._progressed = False  # a message got its outcome: no need to wait before going on
        self._rewinding = False  # a batch was not stored: nothing more is sent
        self._free_from: int | None = None  # numbers that were refused for good
        self.unasked = Unasked()
        self._failed: KvcqError | None = None  # the store: whether a batch is in it is not known

    # --- what the producer calls -----------------------------------------------------------

    def wake(self) -> None:
        """There are new batches. In the loop."""
        self._changed.set()

    def after_fork(self, error: KvcqError) -> None:
        """In a child process: what is on its way is the parent's."""
        for batch in (*self._waiting, *self._flying, *self._again):
            batch.after_fork(error)

    def stop(self) -> None:
        """End `run` once all that was handed over has an outcome. In the loop."""
        self._closing = True
        self._changed.set()

    async def run(self) -> None:
        """Deliver until stopped. When it is cancelled, what is left gets ClosedError."""
        backoff = Backoff()
        try:
            while await self._have_work():
                try:
                    await self._stream(backoff)
                except HandshakeError as error:
                    self._fail_all(error)
                except grpc.aio.AioRpcError as rpc_error:
                    self._last_error = from_rpc(rpc_error)
                    if not may_pass(self._last_error):
                        self._give_up_sent(self._last_error)
                if self._failed is not None:
                    self._give_up_sent(self._failed)
                    self._failed = None
                self._rewind()
                self._expire()
                is_stuck = self._waiting and not self._progressed
                if is_stuck and await self._connection.rest(backoff.next_s()):
                    backoff.reset()
        except asyncio.CancelledError:
            self._fail_all(ClosedError(f"closed before it was acknowledged{self._why()}"))
            raise
        except Exception as error:
            # A defect here must not leave callers waiting for ever, nor take more messages.
            logger.exception("the producer failed")
            self._accumulator.close(ClosedError(f"the producer failed: {error!r}"))
            self._fail_all(KvcqError(f"the producer failed: {error!r}"))

    @property
    def next_sequence(self) -> int:
        """The number of the next message that is sent for the first time."""
        return self._next_sequence

    @property
    def producer_id(self) -> str:
        """The name that batches are sent under now."""
        name = self._config.producer_id
        return f"{name}.{self._epoch}" if self._epoch else name

    # --- one stream ------------------------------------------------------------------------

    async def _have_work(self) -> bool:
        while True:
            self._changed.clear()
            self._waiting.extend(self._accumulator.take_ready())
            if self._waiting:
                return True
            if self._closing:
                return False
            await self._changed.wait()

    async def _stream(self, backoff: Backoff) -> None:
        """Returns when the stream is of no more use. Raises AioRpcError when it broke,
        HandshakeError when there can be none."""
        await self._connection.first_contact()
        self._proven = self._progressed = self._rewinding = False
        call: Call = self._connection.put_stream(None)
        reader = asyncio.create_task(self._read(call, backoff), name="put-answers")
        reader.add_done_callback(lambda _: self._changed.set())
        try:
            async with asyncio.timeout(None) as limit:
                while not reader.done():
                    self._changed.clear()
                    self._waiting.extend(self._accumulator.take_ready())
                    limit.reschedule(self._answer_due())
                    if self._may_send():
                        await self._send(call, self._waiting.popleft(), reader)
                    elif self._closing and not self._waiting and not self._flying:
                        await call.done_writing()
                        return
                    else:
                        await self._changed.wait()
            reader.result()
        except TimeoutError:
            self._last_error = UnavailableError("the server did not answer in time")
        finally:
            reader.cancel()
            call.cancel()
            # Its outcome was taken above, or is that of a stream which is no longer wanted.
            await asyncio.gather(reader, return_exceptions=True)

    def _may_send(self) -> bool:
        window = self._config.window if self._proven else 1
        return bool(self._waiting) and not self._rewinding and len(self._flying) < window

    def _answer_due(self) -> float | None:
        # What waits counts as well: writing it may be what does not end.
        oldest = self._flying or self._waiting
        if not oldest:
            return None
        left_s = oldest[0].begun_s + self._config.delivery_timeout_s - monotonic()
        return asyncio.get_running_loop().time() + max(0.0, left_s)

    async def _send(self, call: Call, batch: Batch, reader: asyncio.Task[None]) -> None:
        sequence = self._next_sequence if batch.sequence is None else batch.sequence
        try:
            request = put_stream_request(sequence, batch.messages, self.producer_id, sequence)
        except Exception as error:  # noqa: BLE001 - told as the outcome of its batch
            # What `send` did not notice, such as a queue id of 1.0, fails its batch and no other.
            kind = InvalidArgumentError if isinstance(error, TypeError | ValueError) else KvcqError
            reason = f"the batch cannot be made into a request: {error!r}"
            self._finish(batch, None, kind(reason))
            return
        if batch.sequence is None:
            batch.sequence = sequence
            self._next_sequence += batch.count - len(batch.errors)
        self._flying.append(batch)
        try:
            await write_request(call, request)
        except STREAM_OVER:
            await asyncio.wait({reader})  # the stream has ended; the reader knows why

    async def _read(self, call: Call, backoff: Backoff) -> None:
        """Answers, until the stream ends, or all have come and some go again."""
        while not self._rewinding or self._flying:
            response = await call.read()
            if not isinstance(response, pb.PutStreamResponse):  # the end
                self._last_error = UnavailableError("the server ended the stream")
                return
            batch = self._flying.popleft()
            assert response.request_id == batch.sequence, "answers come in order"
            if response.HasField("error"):
                self._refused(batch, from_batch_error(response.error))
            else:
                backoff.reset()
                self._proven = self._progressed = True
                self._finish(batch, response.batch, None)
            self._changed.set()

    # --- outcomes --------------------------------------------------------------------------

    def _refused(self, batch: Batch, error: KvcqError) -> None:
        """The batch was not stored, or (UNAVAILABLE) may be stored but not durable yet."""
        is_follower, self._rewinding = self._rewinding, True
        if isinstance(error, UnavailableError):
            self._last_error = error
        elif error.reason == _OUT_OF_SEQUENCE:
            if not is_follower:
                # The server has lost what was before it, in a loss of power: what is left is not
                # stored, and goes out under a new name.
                self._last_error = error
                self._free_from = 0 if self._free_from is None else self._free_from
                self._epoch += 1
        elif not isinstance(error, _NOTHING_WRITTEN):
            self._failed = error
            self._progressed = True
            self._finish(batch, None, error)
            return
        else:
            self._free_from = batch.sequence if self._free_from is None else self._free_from
            self._progressed = True
            if not _take_out(batch, error):
                self._finish(batch, None, error)
                return
        self._again.append(batch)

    def _finish(
        self, batch: Batch, response: pb.PutBatchResponse | None, failure: KvcqError | None
    ) -> None:
        batch.finish(response, failure, self.unasked)
        self._accumulator.finished(batch.size)  # then: who flushes finds its outcome

    def _rewind(self) -> None:
        """The stream is over: whatever has no outcome waits again, in its old order."""
        self._waiting.extendleft(reversed((*self._again, *self._flying)))
        self._again.clear()
        self._flying.clear()
        if self._free_from is not None:
            for batch in self._waiting:
                if batch.sequence is not None and batch.sequence >= self._free_from:
                    batch.sequence = None
            self._next_sequence = self._free_from
            self._free_from = None

    def _expire(self) -> None:
        """Give up what was not acknowledged within the delivery timeout."""
        begun_s = monotonic() - self._config.delivery_timeout_s
        while self._waiting and self._waiting[0].begun_s <= begun_s:
            text = f"not acknowledged within {self._config.delivery_timeout_s:g} s{self._why()}"
            if self._waiting[0].sequence is None:  # never sent, or known not to be stored
                self._finish(self._waiting.popleft(), None, DeliveryTimeoutError(text))
            else:
                self._give_up_sent(DeliveryTimeoutError(text))

    def _why(self) -> str:
        """What the last attempt came to, and with which server."""
        outcome = self._last_error or "has not answered"
        return f"; the server at {self._connection.target}: {outcome}"

    def _give_up_sent(self, error: KvcqError) -> None:
        """All that was sent and has no outcome fails; what follows goes under a new name."""
        self._rewind()
        while self._waiting and self._waiting[0].sequence is not None:
            self._finish(self._waiting.popleft(), None, error)
        self._epoch += 1
        self._next_sequence = 0

    def _fail_all(self, error: KvcqError) -> None:
        self._rewind()
        self._waiting.extend(self._accumulator.take_ready())
        while self._waiting:
            self._finish(self._waiting.popleft(), None, error)


def _take_out(batch: Batch, error: KvcqError) -> bool:
    """Take the messages that the error speaks of out of the batch; whether any are left.

    An error that does not name its messages is one of the whole batch: False.
    """
    bad = _named_by(batch.messages, error)
    if not bad:
        return False
    kept = [index for index in range(batch.count) if index not in batch.errors]
    for at in bad:
        batch.errors[kept[at]] = error
    if len(bad) == len(kept):
        return False
    batch.messages = [one for at, one in enumerate(batch.messages) if at not in bad]
    return True


def _named_by(messages: Sequence[Outgoing], error: KvcqError) -> set[int]:
    """Indices of the messages that were the reason."""
    if isinstance(error, InvalidArgumentError):
        found = _MESSAGE_INDEX.match(error.field)
        index = int(found[1]) if found else len(messages)
        return {index} if index < len(messages) else set()
    if isinstance(error, NotFoundError) and "topic" in error.metadata:
        topic = error.metadata["topic"]
        queue_id = error.metadata.get("queueId")
        return {
            index
            for index, (of, _, its_queue_id, *_) in enumerate(messages)
            if of == topic and (queue_id is None or its_queue_id == int(queue_id))
        }
    return set()
