"""Delivers batches to the server in order, each stored exactly once.

Messages are numbered in the order they were sent. A batch carries the number of its first message,
and the server only stores it if it follows the previous batch. So the batches after a lost one are
rejected, and one that arrives twice is acknowledged twice and stored once.

Up to `window` batches are in flight on a stream. If one of them is not stored, those after it are
rejected too; once all responses have arrived, unacknowledged batches are resent on a new stream.
The first batch of a stream is sent alone: a server that has just started does not know the next
number, and must not take a later one for it.

A final error fails as few messages as the server's response allows:

* Messages that the error names (an unknown or forbidden topic, a body that is too large) are
  removed from their batch and fail; the following numbers move up.
* An error of the whole batch that proves that nothing was written (the disk is full): the batch
  fails; the following numbers move up.
* A batch that may be in the log: the store failed while writing it, or it was sent, the stream
  broke, and its time is up. It fails, as do all other batches that may be in the log. The remaining
  ones are resent under a new producer name, since the old numbers may be taken.
* A number that holds other messages. If the caller chose the first number, every batch fails until
  the caller sends the former messages, or uses another producer id. Otherwise another producer uses
  the same id, and the batch is resent under a new name.
* All waiting batches, if waiting does not help: TLS settings prevent a connection, or the server
  rejects the client's credentials.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING
from uuid import uuid4

import grpc

from kvcq_client.errors import (
    ClosedError,
    DeadlineError,
    DeliveryTimeoutError,
    HandshakeError,
    InvalidArgumentError,
    KvcqError,
    NotFoundError,
    NumberPassedError,
    NumberReusedError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
)
from kvcq_client.format import put_stream_request
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.producing.batch import Failures
from kvcq_client.transport import (
    STREAM_OVER,
    Backoff,
    connected,
    from_batch_error,
    from_rpc,
    is_retried,
    write_request,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcq_client.format import Outgoing
    from kvcq_client.producing.accumulator import Accumulator
    from kvcq_client.producing.batch import Batch
    from kvcq_client.producing.config import ProducerConfig
    from kvcq_client.transport import Connection

    Stream = grpc.aio.StreamStreamCall[bytes, pb.PutStreamResponse]

logger = logging.getLogger(__name__)

_OUT_OF_SEQUENCE = "OUT_OF_SEQUENCE"
# Rejected before anything was written, so the number is free.
_NOTHING_WRITTEN = (
    InvalidArgumentError,
    NotFoundError,
    NumberPassedError,
    NumberReusedError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnauthenticatedError,
)
# Errors that the server may raise before it looks up the number. Such an error does not show
# whether an earlier attempt, whose response was lost, was stored.
_BEFORE_LOOKUP = (NotFoundError, PermissionDeniedError, UnauthenticatedError)
_MESSAGE_INDEX = re.compile(r"messages\[(\d+)\]")
#: Ends a truncated metadata value; see server/wire/status.py.
_CUT = "…"


class Delivery:
    """The sending side of one producer. Owned by the event loop of its connection."""

    def __init__(
        self, connection: Connection, accumulator: Accumulator, config: ProducerConfig
    ) -> None:
        self._connection = connection
        self._accumulator = accumulator
        self._config = config
        self._name = config.producer_id or uuid4().hex
        self._chose_number = config.first_sequence is not None
        # None until the server has been asked, before the first batch.
        self._next_sequence = config.first_sequence
        if config.producer_id is None and self._next_sequence is None:
            self._next_sequence = 0
        # In order: first batches with a number (they were sent before), then the others.
        self._waiting: deque[Batch] = deque()
        self._changed = asyncio.Event()
        self._closing = False
        self._last_error: KvcqError | None = None
        # State of the current stream.
        self._in_flight: deque[Batch] = deque()  # sent, in order, without a response
        self._to_resend: list[Batch] = []  # rejected, to be resent
        self._proven = False  # a batch was stored: the server knows the next number
        self._progressed = False  # a message got its result: continue without backoff
        self._rewinding = False  # a batch was not stored: send nothing more
        self._free_from: int | None = None  # numbers from here on are free again
        self.failures = Failures()
        self._one_by_one = (
            0  # how many batches to send one by one, to find a request that is too large
        )
        # Set when the numbers can no longer be used: batches that may be stored fail with it, the
        # others are resent under a new name.
        self._given_up: KvcqError | None = None

    # --- what the producer calls -----------------------------------------------------------

    def wake(self) -> None:
        """Notice new batches. In the loop."""
        self._changed.set()

    def after_fork(self, error: KvcqError) -> None:
        """In a forked child: fail all batches, which the parent delivers."""
        for batch in (*self._waiting, *self._in_flight, *self._to_resend):
            batch.after_fork(error)

    def stop(self) -> None:
        """End `run` once all batches have their results. In the loop."""
        self._closing = True
        self._changed.set()

    async def run(self) -> None:
        """Deliver until stopped. If cancelled, the remaining batches fail with ClosedError."""
        backoff = Backoff()
        try:
            while await self._have_work():
                try:
                    await self._stream(backoff)
                except HandshakeError as error:
                    self._fail_all(error)
                except grpc.aio.AioRpcError as rpc_error:
                    self._stream_refused(from_rpc(rpc_error))
                except KvcqError as error:  # asking for the first number failed
                    self._last_error = error
                    if not (is_retried(error) or isinstance(error, DeadlineError)):
                        self._fail_all(error)
                if self._given_up is not None:
                    self._give_up(self._given_up)
                self._rewind()
                self._expire()
                is_stuck = self._waiting and not self._progressed
                if is_stuck and await self._connection.rest(backoff.next_s()):
                    backoff.reset()
        except asyncio.CancelledError:
            self._fail_all(self._closed())
            raise
        except ClosedError as error:  # the client was closed while the server was away
            self._accumulator.close(error)
            self._fail_all(self._closed())
        except Exception as error:
            # A defect here must not leave callers waiting, nor accept more messages.
            logger.exception("the producer failed")
            self._accumulator.close(ClosedError(f"the producer failed: {error!r}"))
            self._fail_all(KvcqError(f"the producer failed: {error!r}"))

    @property
    def next_sequence(self) -> int | None:
        """The number of the next new message; None while it is not known."""
        return self._next_sequence

    @property
    def producer_id(self) -> str:
        """The producer name of batches that are sent now."""
        return self._name

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
        """Send batches over one stream, until it has to be replaced. Raises AioRpcError when it
        broke, and HandshakeError."""
        await self._connection.first_contact()
        if self._next_sequence is None:
            self._next_sequence = await self._first_number()
        self._proven = self._progressed = self._rewinding = False
        call: Stream = self._connection.put_stream(None)
        reader = asyncio.create_task(self._read(call, backoff), name="put-answers")
        reader.add_done_callback(lambda _: self._changed.set())
        try:
            async with asyncio.timeout(None) as limit:
                limit.reschedule(self._answer_due())
                await connected(call)
                while not reader.done():
                    self._changed.clear()
                    self._waiting.extend(self._accumulator.take_ready())
                    limit.reschedule(self._answer_due())
                    if self._may_send():
                        await self._send(call, self._waiting.popleft(), reader)
                    elif self._closing and not self._waiting and not self._in_flight:
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
            # Its error was raised above, or belongs to a stream that is given up.
            await asyncio.gather(reader, return_exceptions=True)

    async def _first_number(self) -> int:
        """Ask the server for this producer's next free number. Raises KvcqError."""
        connection = self._connection
        begun_s = self._waiting[0].begun_s
        left_s = begun_s + self._config.delivery_timeout_s - monotonic()
        answer = await connection.call(
            connection.messages.GetProducer,
            pb.GetProducerRequest(producer_id=self._name),
            max(0.001, min(left_s, connection.timeout_s)),
        )
        number: int = answer.next_sequence
        return number

    def _may_send(self) -> bool:
        window = self._config.window if self._proven and self._one_by_one <= 0 else 1
        return bool(self._waiting) and not self._rewinding and len(self._in_flight) < window

    def _answer_due(self) -> float | None:
        # Waiting batches count as well: a write may be what hangs.
        oldest = self._in_flight or self._waiting
        if not oldest:
            return None
        left_s = oldest[0].begun_s + self._config.delivery_timeout_s - monotonic()
        return asyncio.get_running_loop().time() + max(0.0, left_s)

    async def _send(self, call: Stream, batch: Batch, reader: asyncio.Task[None]) -> None:
        assert self._next_sequence is not None, "the stream began with a number"
        sequence = self._next_sequence if batch.sequence is None else batch.sequence
        try:
            request = put_stream_request(sequence, batch.messages, self._name, sequence)
        except Exception as error:  # noqa: BLE001 - it becomes the result of its batch
            # What `send` did not check fails only its own batch.
            kind = InvalidArgumentError if isinstance(error, TypeError | ValueError) else KvcqError
            reason = f"cannot encode the batch: {error!r}"
            self._finish(batch, None, kind(reason))
            return
        if batch.sequence is None:
            batch.sequence = sequence
            self._next_sequence += batch.count - len(batch.errors)
        self._in_flight.append(batch)
        try:
            await write_request(call, request)
        except STREAM_OVER:
            await asyncio.wait({reader})  # the stream has ended; `_read` knows why

    async def _read(self, call: Stream, backoff: Backoff) -> None:
        """Read responses until the stream ends, or until all have arrived and some batches must be
        resent."""
        while not self._rewinding or self._in_flight:
            response = await call.read()
            if not isinstance(response, pb.PutStreamResponse):  # the end
                self._last_error = UnavailableError("the server ended the stream")
                return
            batch = self._in_flight.popleft()
            assert response.request_id == batch.sequence, "answers come in order"
            if response.HasField("error"):
                self._refused(batch, from_batch_error(response.error))
            elif self._is_of_another(batch, response.batch):
                self._refused(batch, NumberReusedError("another producer used that number"))
            else:
                backoff.reset()
                self._proven = self._progressed = True
                self._finish(batch, response.batch, None)
            self._changed.set()

    # --- outcomes --------------------------------------------------------------------------

    def _is_of_another(self, batch: Batch, stored: pb.PutBatchResponse) -> bool:
        """Whether the server acknowledged this batch as a repetition although it was not sent
        before: another producer uses the same id, and these messages are not in the log."""
        return stored.repeated_batch and not batch.may_be_stored and not self._chose_number

    def _refused(self, batch: Batch, error: KvcqError) -> None:
        """Handle an error response: the batch was not stored by this attempt, or is not durable."""
        is_follower, self._rewinding = self._rewinding, True
        if is_retried(error):
            self._last_error = error
            batch.may_be_stored = True  # for example, its flush timed out
        elif error.reason == _OUT_OF_SEQUENCE:
            if not is_follower:
                # The server lost the preceding batches in a power loss. The remaining ones are not
                # stored, and are resent under a new name.
                self._last_error = error
                self._new_name()
                self._free_from = 0
        elif isinstance(error, NumberReusedError | NumberPassedError) and not self._chose_number:
            # Another producer uses this id, and stored other messages under this number.
            self._progressed = True
            self._given_up = error
            if isinstance(error, NumberPassedError) and batch.may_be_stored:
                self._finish(batch, None, error)  # it may have been stored, and expired
                return
            batch.may_be_stored = False
        elif not isinstance(error, _NOTHING_WRITTEN) or (
            batch.may_be_stored and isinstance(error, _BEFORE_LOOKUP)
        ):
            self._given_up = error
            self._progressed = True
            self._finish(batch, None, error)
            return
        else:
            self._free_from = batch.sequence if self._free_from is None else self._free_from
            self._progressed = True
            if not _take_out(batch, error):
                self._finish(batch, None, error)
                return
        self._to_resend.append(batch)

    def _stream_refused(self, error: KvcqError) -> None:
        """Handle the error that a stream ended with."""
        self._last_error = error
        if is_retried(error):
            return
        if isinstance(error, UnauthenticatedError):
            self._fail_all(error)
        elif error.reason and isinstance(error, _NOTHING_WRITTEN) and self._in_flight:
            # The server responds to all batches that it accepted before it ends the stream: the
            # first one without a response is the reason, and later ones were not read.
            batch = self._in_flight.popleft()
            self._refused(batch, error)
            self._to_resend += self._in_flight
            self._in_flight.clear()
        elif isinstance(error, ResourceExhaustedError) and not error.reason and self._in_flight:
            # gRPC's own limit: one of the requests is too large, and gRPC does not say which.
            if len(self._in_flight) == 1:
                self._refused(self._in_flight.popleft(), error)
            else:
                self._one_by_one = len(self._in_flight)
        else:
            self._given_up = error

    def _finish(
        self, batch: Batch, response: pb.PutBatchResponse | None, failure: KvcqError | None
    ) -> None:
        self._one_by_one -= 1
        batch.finish(response, failure, self.failures)
        self._accumulator.finished(batch.size)  # afterwards, so that `flush` finds the result

    def _rewind(self) -> None:
        """After the end of a stream, let batches without a result wait again, in their order."""
        for batch in self._in_flight:
            batch.may_be_stored = True
        self._waiting.extendleft(reversed((*self._to_resend, *self._in_flight)))
        self._to_resend.clear()
        self._in_flight.clear()
        if self._free_from is not None:
            for batch in self._waiting:
                if batch.sequence is not None and batch.sequence >= self._free_from:
                    # An earlier one was not stored, so this one was not either.
                    batch.sequence = None
                    batch.may_be_stored = False
            self._next_sequence = self._free_from
            self._free_from = None

    def _expire(self) -> None:
        """Fail batches that were not acknowledged within the delivery timeout."""
        begun_s = monotonic() - self._config.delivery_timeout_s
        while self._waiting and self._waiting[0].begun_s <= begun_s:
            error = DeliveryTimeoutError(
                f"not acknowledged within {self._config.delivery_timeout_s:g} s{self._why()}"
            )
            batch = self._waiting.popleft()
            self._finish(batch, None, error)
            if batch.sequence is not None:  # otherwise it is known not to be stored
                self._give_up(error)

    def _closed(self) -> ClosedError:
        return ClosedError(f"closed before it was acknowledged{self._why()}")

    def _why(self) -> str:
        """The server and the last error, for messages."""
        outcome = self._last_error or "has not answered"
        return f"; the server at {self._connection.target}: {outcome}"

    def _give_up(self, error: KvcqError) -> None:
        """Fail batches that may be stored; resend the others under a new name."""
        self._rewind()
        waiting, self._waiting = self._waiting, deque()
        for batch in waiting:
            if batch.may_be_stored:
                self._finish(batch, None, error)
            else:
                batch.sequence = None
                self._waiting.append(batch)
        self._new_name()
        self._given_up = None

    def _new_name(self) -> None:
        """Choose a producer name that was never used, so that all its numbers are free."""
        base = self._config.producer_id or uuid4().hex
        self._name = f"{base}.{uuid4().hex[:12]}"
        self._next_sequence = 0

    def _fail_all(self, error: KvcqError) -> None:
        self._rewind()
        self._waiting.extend(self._accumulator.take_ready())
        if any(batch.may_be_stored for batch in self._waiting):
            self._new_name()
        while self._waiting:
            self._finish(self._waiting.popleft(), None, error)


def _take_out(batch: Batch, error: KvcqError) -> bool:
    """Remove the messages that the error names from the batch. Returns whether any are left.

    False for an error that names no message: it concerns the whole batch.
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
    """Indices of the messages that the error names."""
    if isinstance(error, InvalidArgumentError):
        found = _MESSAGE_INDEX.match(error.field)
        index = int(found[1]) if found else len(messages)
        return {index} if index < len(messages) else set()
    if isinstance(error, NotFoundError | PermissionDeniedError) and "topic" in error.metadata:
        name = error.metadata["topic"]
        queue_id = error.metadata.get("queueId")
        return {
            index
            for index, (topic, _, its_queue_id, _, _, light_queues, *_) in enumerate(messages)
            if any(_is(name, one) for one in (topic, *(light_queues or ())))
            and (queue_id is None or its_queue_id == int(queue_id))
        }
    return set()


def _is(named: str, name: str) -> bool:
    """Whether the server named it; the server truncates long values."""
    return named == name or (named.endswith(_CUT) and name.startswith(named[: -len(_CUT)]))
