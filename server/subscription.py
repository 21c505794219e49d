"""Subscribe: one stream follows many queues, from any offset, as fast as the client grants.

A queue is in one of three states: *ready* (there may be something to read), *idle* (read to its
end; woken by growth), or *dropped* (its error was sent). Ready queues take turns, one response
each, so that a long queue does not starve a short one. A response costs its bytes of records in
credit; nothing is read while there is none left. Answers that carry no records cost nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from proto.v1 import kvcq_pb2 as pb
from server.convert import bounded, form_of, in_range, not_negative
from server.put_stream import batch_error
from server.reader import read_queue
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from server.metrics import CallMetrics
    from server.queue_growth import QueueKey
    from server.stage import Parts, Stage

METHOD = "Subscribe"
DEFAULT_MESSAGES = 1024
MAX_MESSAGES = 10_000
#: Of one response, however much credit there is: queues take turns, and memory stays bounded.
TURN_BYTES = 1 << 20


class Subscription:
    """One stream's queues, credit, and turns. Owned by the event loop's thread."""

    def __init__(self, parts: Parts, stage: Stage, metrics: CallMetrics, call_id: str) -> None:
        self._parts = parts
        self._stage = stage
        self._metrics = metrics
        self._call_id = call_id
        self._offsets: dict[QueueKey, int] = {}  # followed queues: next offset
        # Bumped by add and remove: a read that was under way meanwhile is thrown away.
        self._generations: dict[QueueKey, int] = {}
        self._generation = 0
        self._ready: deque[QueueKey] = deque()
        self._in_ready: set[QueueKey] = set()
        self._credit_bytes = 0
        self._changed = asyncio.Event()
        self._ended = False
        self._failure: Exception | None = None
        # Fixed by the first request.
        self._configured = False
        self._tag_filter = ""
        self._form = pb.RECORD_FORM_DECODED
        self._max_messages = DEFAULT_MESSAGES

    async def run(
        self, requests: AsyncIterator[pb.SubscribeRequest]
    ) -> AsyncGenerator[pb.SubscribeResponse, None]:
        """Responses, until the client ends its side or the server drains."""
        taker = asyncio.create_task(self._take(requests), name="subscription")
        stop_listening = self._stage.on_change(self._changed.set)
        try:
            while True:
                key = self._next_turn()
                if key is not None:
                    response = await self._turn(key)
                    if response is not None:
                        yield response
                    continue
                if self._failure is not None:
                    raise self._failure
                if self._ended or self._stage.is_draining:
                    return
                self._changed.clear()
                await self._changed.wait()
        finally:
            stop_listening()
            taker.cancel()
            for followed in self._offsets:
                self._parts.growth.unwatch(followed, self._grew)

    # --- requests --------------------------------------------------------------------------

    async def _take(self, requests: AsyncIterator[pb.SubscribeRequest]) -> None:
        try:
            async for request in requests:
                self._apply(request)
                self._changed.set()
        except Exception as error:  # noqa: BLE001 - `run` raises it to the caller
            self._failure = error
        self._ended = True
        self._changed.set()

    def _apply(self, request: pb.SubscribeRequest) -> None:
        self._configure(request)
        for index, queue in enumerate(request.add):
            not_negative(f"add[{index}].queue_id", queue.queue_id)
            not_negative(f"add[{index}].offset", queue.offset)
            self._add((queue.topic, queue.queue_id), queue.offset)
        for queue in request.remove:
            self._remove((queue.topic, queue.queue_id))
        limit = self._parts.config.max_stream_credit_bytes
        in_range("credit_bytes", request.credit_bytes, 0, limit)
        self._credit_bytes = min(self._credit_bytes + request.credit_bytes, limit)

    def _configure(self, request: pb.SubscribeRequest) -> None:
        if not self._configured:
            self._configured = True
            self._tag_filter = request.tag_filter
            self._form = form_of(request.form)
            self._max_messages = bounded(
                "max_messages", request.max_messages, DEFAULT_MESSAGES, MAX_MESSAGES
            )
            return
        for field, differs in (
            ("tag_filter", request.tag_filter and request.tag_filter != self._tag_filter),
            ("form", request.form and request.form != self._form),
            ("max_messages", request.max_messages and request.max_messages != self._max_messages),
        ):
            if differs:
                raise InvalidArgumentError(field, "is set by the first request of the stream")

    def _add(self, key: QueueKey, offset: int) -> None:
        limit = self._parts.config.max_stream_queues
        if key not in self._offsets and len(self._offsets) >= limit:
            raise InvalidArgumentError("add", f"more than {limit} queues in one stream")
        self._offsets[key] = offset
        self._generation += 1
        self._generations[key] = self._generation
        self._parts.growth.watch(key, self._grew)
        self._make_ready(key)

    def _remove(self, key: QueueKey) -> None:
        if self._offsets.pop(key, None) is not None:
            del self._generations[key]
            self._parts.growth.unwatch(key, self._grew)

    # --- turns -----------------------------------------------------------------------------

    def _grew(self, key: QueueKey) -> None:
        self._make_ready(key)
        self._changed.set()

    def _make_ready(self, key: QueueKey) -> None:
        if key not in self._in_ready:
            self._in_ready.add(key)
            self._ready.append(key)

    def _next_turn(self) -> QueueKey | None:
        if self._credit_bytes <= 0 or self._stage.is_draining or self._failure is not None:
            return None
        while self._ready:
            key = self._ready.popleft()
            self._in_ready.discard(key)
            if key in self._offsets:  # else it was removed
                return key
        return None

    async def _turn(self, key: QueueKey) -> pb.SubscribeResponse | None:
        """What the queue has for the client now; None: nothing, and it is idle."""
        topic, queue_id = key
        generation = self._generations[key]
        try:
            batch = await read_queue(
                self._parts,
                topic,
                queue_id,
                self._offsets[key],
                self._max_messages,
                min(self._credit_bytes, TURN_BYTES),
                self._tag_filter,
                self._form,
            )
        except Exception as error:  # noqa: BLE001 - the other queues go on
            if self._generations.get(key) != generation:
                return None
            self._remove(key)
            return pb.SubscribeResponse(
                topic=topic,
                queue_id=queue_id,
                error=batch_error(self._metrics, METHOD, error, self._call_id),
            )
        if self._generations.get(key) != generation:  # moved or removed while it was read
            return None
        if batch.status == pb.PULL_STATUS_NO_NEW_MESSAGE:
            return None
        self._offsets[key] = batch.next_offset
        self._credit_bytes -= _cost_bytes(batch)
        if batch.next_offset < batch.max_offset:
            self._make_ready(key)
        self._metrics.count("messages_pulled", len(batch.messages) or len(batch.queue_offsets))
        return pb.SubscribeResponse(topic=topic, queue_id=queue_id, batch=batch)


def _cost_bytes(batch: pb.PullResponse) -> int:
    """The bytes of credit a batch takes: of its records, or of its encoded messages."""
    if batch.records:
        return len(batch.records)
    return sum(message.ByteSize() for message in batch.messages)
