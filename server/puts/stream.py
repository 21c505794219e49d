"""PutStream: batches in, responses out in the same order, many in flight.

Batches are appended as they arrive; responses wait for their turn and, in SYNC mode, for the disk.
While `window` responses wait, or UNSENT_BYTES of them, no further batch is read from the stream,
and gRPC's flow control holds the producer back.

After a numbered batch was rejected, no later batch of its producer is accepted until that one is
sent again. The table of producers checks the same, but it may forget a producer at any time; a
later batch would then count as the next one, and be stored out of order.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.edge import batch_error
from server.errors import OutOfSequenceError, ServerDrainingError
from server.puts.producer_sessions import check_number
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from server.metrics import CallMetrics
    from server.puts.durability import Durability
    from server.stage import Stage

METHOD = "PutStream"
#: Bytes of responses that wait to be sent; the response to a batch of thousands of messages has a
#: megabyte.
UNSENT_BYTES = 256 << 10
#: Maximum for one stream. A client has one producer on it, or a few.
MAX_REFUSED_PRODUCERS = 1024


class AppendedBatch(NamedTuple):
    """A batch that was appended; `end_offset` must be durable before `response` is sent."""

    response: pb.PutBatchResponse
    end_offset: int


class _Pending(NamedTuple):
    request_id: int
    outcome: AppendedBatch | Exception

    @property
    def size(self) -> int:
        """Approximate size of the response, in bytes."""
        return self.outcome.response.ByteSize() if isinstance(self.outcome, AppendedBatch) else 0


class _End(NamedTuple):
    error: Exception | None


class PutStream:
    """One stream of batches. Owned by the event loop's thread."""

    def __init__(
        self,
        append: Callable[[pb.PutBatchRequest], Awaitable[AppendedBatch]],
        durability: Durability,
        stage: Stage,
        metrics: CallMetrics,
        call_id: str,
        window: int,
    ) -> None:
        self._append = append
        self._durability = durability
        self._stage = stage
        self._metrics = metrics
        self._call_id = call_id
        self._pending: asyncio.Queue[_Pending | _End] = asyncio.Queue(window)
        self._unsent_bytes = 0
        self._sent = asyncio.Event()
        self._is_reading = False
        # By producer, the rejected number that must be sent again first.
        self._refused: dict[str, int] = {}

    async def run(
        self, requests: AsyncIterator[pb.PutStreamRequest]
    ) -> AsyncGenerator[pb.PutStreamResponse, None]:
        """Yield the responses. A rejected batch gets an error as its response; the stream
        continues.

        Raises ServerDrainingError, after the responses to all accepted batches, when the server is
        shutting down.
        """
        taker = asyncio.create_task(self._take(requests), name="put-stream")

        def stop_reading() -> None:
            # Only between batches: what was appended is answered.
            if self._is_reading and self._stage.is_draining:
                taker.cancel()

        stop_listening = self._stage.on_change(stop_reading)
        try:
            while True:
                item = await self._pending.get()
                if isinstance(item, _Pending):
                    yield await self._answer(item)
                    self._unsent_bytes -= item.size
                    self._sent.set()
                elif item.error is not None:
                    raise item.error
                else:
                    return
        finally:
            stop_listening()
            taker.cancel()

    async def _take(self, requests: AsyncIterator[pb.PutStreamRequest]) -> None:
        end: Exception | None = None
        try:
            while not self._stage.is_draining:
                self._is_reading = True
                request = await anext(requests, None)
                self._is_reading = False
                if request is None:
                    break
                answer = await self._try_append(request)
                del request  # the next one may be long in coming
                self._unsent_bytes += answer.size
                await self._pending.put(answer)
                while self._unsent_bytes >= UNSENT_BYTES:
                    self._sent.clear()
                    await self._sent.wait()
        except asyncio.CancelledError:
            if not self._stage.is_draining:
                raise
        except Exception as error:  # noqa: BLE001 - the stream itself broke: `run` raises it
            end = error
        self._is_reading = False
        await self._pending.put(_End(ServerDrainingError() if self._stage.is_draining else end))

    async def _try_append(self, request: pb.PutStreamRequest) -> _Pending:
        batch = request.batch
        producer_id, sequence = batch.producer.producer_id, batch.producer.sequence
        expected = self._refused.get(producer_id)
        if expected is not None and sequence > expected:
            error = OutOfSequenceError(producer_id, sequence, expected)
            return _Pending(request.request_id, error)
        try:
            answer = await self._append(batch)
        except Exception as failure:  # noqa: BLE001 - the answer to this batch says so
            if _may_come_again(batch, failure):
                self._remember_refused(producer_id, sequence)
            return _Pending(request.request_id, failure)
        # The batch may have been cut differently, and extend beyond the rejected one.
        if expected is not None and sequence + len(answer.response.queue_ids) > expected:
            del self._refused[producer_id]
        return _Pending(request.request_id, answer)

    def _remember_refused(self, producer_id: str, sequence: int) -> None:
        if producer_id not in self._refused and len(self._refused) >= MAX_REFUSED_PRODUCERS:
            # Raised out of the stream: otherwise a later batch could be stored before a forgotten
            # one.
            raise InvalidArgumentError(
                "producer.producer_id",
                f"more than {MAX_REFUSED_PRODUCERS} producers of this stream have a refused batch",
            )
        self._refused[producer_id] = sequence

    async def _answer(self, item: _Pending) -> pb.PutStreamResponse:
        outcome = item.outcome
        if isinstance(outcome, AppendedBatch):
            try:
                await self._durability.wait(outcome.end_offset)
            except Exception as failure:  # noqa: BLE001 - the answer to this batch says so
                outcome = failure
        if isinstance(outcome, AppendedBatch):
            return pb.PutStreamResponse(request_id=item.request_id, batch=outcome.response)
        error = batch_error(self._metrics, METHOD, outcome, self._call_id)
        return pb.PutStreamResponse(request_id=item.request_id, error=error)


def _may_come_again(batch: pb.PutBatchRequest, failure: Exception) -> bool:
    """Whether the batch is numbered, and was rejected for another reason than its number."""
    if not batch.HasField("producer") or isinstance(failure, OutOfSequenceError):
        return False
    try:
        check_number(batch.producer.producer_id, batch.producer.sequence)
    except InvalidArgumentError:
        return False
    return True
