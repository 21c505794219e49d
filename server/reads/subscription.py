"""Subscribe: one stream follows many queues, from any offset, as fast as the client grants.

A queue is in one of three states: *ready* (there may be something to read), *idle* (read to its
end; woken by growth), or *dropped* (its error was sent). Ready queues take turns: a turn is one
read of one queue, and a response carries as many turns as fill it, so that many short queues cost
few responses and a long queue does not starve a short one. A turn costs its bytes of records in
credit; nothing is read while there is none left. Answers that carry no records cost nothing.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.access import current_caller
from server.edge import batch_error
from server.encoded import Held
from server.errors import MemoryFullError
from server.reads.reader import Aside, Wanted, is_laborious
from server.wire import (
    bounded,
    form_of,
    in_range,
    not_negative,
    queue_batch_out,
)
from store.errors import InvalidArgumentError
from store.format import LONGEST_NAME, check_length
from store.message import PullStatus
from store.reads import Pulled, TagFilter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence

    from server.config import ServerConfig
    from server.edge import RequestMemory
    from server.metrics import CallMetrics
    from server.readers import FrontReads
    from server.reads.queue_growth import QueueGrowth, QueueKey
    from server.reads.reader import QueueReader
    from server.stage import Stage

METHOD = "Subscribe"
DEFAULT_MESSAGES = 1024
MAX_MESSAGES = 10_000
#: Of one turn, however much credit there is: queues take turns, and memory stays bounded.
TURN_BYTES = 1 << 20
#: A response takes no further turn once it carries so many bytes, or took so long to read: the
#: loop has other calls to serve.
FULL_BYTES = 1 << 19
FULL_S = 0.005
#: Queues that are added, or let go of, in one turn of the loop: up to 5 us each.
QUEUES_A_TURN = 1000
#: Turns of one visit to a worker: the way there and back costs more than to read a short queue.
WORKER_TURNS = 64


class _Turn(NamedTuple):
    """One read of one queue."""

    key: QueueKey
    generation: int
    offset: int


class _Read(NamedTuple):
    """What a turn found."""

    next_offset: int
    max_offset: int
    message_count: int
    # Encoded, as a response with this batch alone: several that are joined are one with all of
    # them. What a front holds is sent by itself. None: nothing new.
    batch: bytes | Held | None
    cost_bytes: int  # of credit: of its records, or of its encoded messages


def _joined(response: Sequence[bytes | Held]) -> bytes:
    """Of several parts; none of them is held elsewhere."""
    return b"".join(part for part in response if isinstance(part, bytes))


def _bytes_of(found: list[_Read | Exception]) -> int:
    return sum(one.cost_bytes for one in found if isinstance(one, _Read))


class Subscription:
    """One stream's queues, credit, and turns. Owned by the event loop's thread."""

    def __init__(
        self,
        reader: QueueReader,
        growth: QueueGrowth,
        config: ServerConfig,
        memory: RequestMemory,
        stage: Stage,
        metrics: CallMetrics,
        call_id: str,
        front: FrontReads | None = None,
    ) -> None:
        self._reader = reader
        self._growth = growth
        self._config = config
        self._memory = memory
        self._stage = stage
        self._metrics = metrics
        self._call_id = call_id
        self._front = front
        self._caller = current_caller()
        self._offsets: dict[QueueKey, int] = {}  # followed queues: next offset
        # Bumped by add and remove: a read that was under way meanwhile is thrown away.
        self._generations: dict[QueueKey, int] = {}
        self._generation = 0
        self._ready: OrderedDict[QueueKey, None] = OrderedDict()  # in the order of their turns
        self._credit_bytes = 0
        self._changed = asyncio.Event()
        self._ended = False
        self._failure: Exception | None = None
        # Fixed by the first request.
        self._configured = False
        self._tag_filter_text = ""
        self._wanted = Wanted(DEFAULT_MESSAGES, None, pb.RECORD_FORM_DECODED)

    async def run(
        self, requests: AsyncIterator[pb.SubscribeRequest]
    ) -> AsyncGenerator[bytes | Held, None]:
        """Responses, until the client ends its side or the server drains."""
        taker = asyncio.create_task(self._take(requests), name="subscription")
        stop_listening = self._stage.on_change(self._changed.set)
        try:
            while True:
                response = await self._next_response()
                if response:
                    yield response[0] if len(response) == 1 else _joined(response)
                    continue
                if self._may_read():
                    await asyncio.sleep(0)  # many queues that had nothing new: let others run
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
            self._take_apart()

    # --- requests --------------------------------------------------------------------------

    async def _take(self, requests: AsyncIterator[pb.SubscribeRequest]) -> None:
        try:
            async for request in requests:
                await self._apply(request)
                self._changed.set()
        except Exception as error:  # noqa: BLE001 - `run` raises it to the caller
            self._failure = error
        self._ended = True
        self._changed.set()

    async def _apply(self, request: pb.SubscribeRequest) -> None:
        """Many queues are added piece by piece: the loop has other calls to serve."""
        self._configure(request)
        add, remove = request.add, request.remove
        for begin in range(0, len(add), QUEUES_A_TURN):
            for index in range(begin, min(begin + QUEUES_A_TURN, len(add))):
                queue = add[index]
                # It would be kept, though nothing is read.
                check_length(queue.topic, f"add[{index}].topic", LONGEST_NAME)
                not_negative(f"add[{index}].queue_id", queue.queue_id)
                not_negative(f"add[{index}].offset", queue.offset)
                self._add((queue.topic, queue.queue_id), queue.offset)
            await self._rest(len(add))
        for begin in range(0, len(remove), QUEUES_A_TURN):
            for queue in remove[begin : begin + QUEUES_A_TURN]:
                self._remove((queue.topic, queue.queue_id))
            await self._rest(len(remove))
        limit = self._config.max_stream_credit_bytes
        in_range("credit_bytes", request.credit_bytes, 0, limit)
        self._credit_bytes = min(self._credit_bytes + request.credit_bytes, limit)

    async def _rest(self, count: int) -> None:
        if count > QUEUES_A_TURN:
            await asyncio.sleep(0)

    def _take_apart(self) -> None:
        """Let go of the queues, piece by piece: to free a million at once takes 0.6 s."""
        for _ in range(QUEUES_A_TURN):
            if not self._offsets:
                return
            self._forget(self._offsets.popitem()[0])
        asyncio.get_running_loop().call_soon(self._take_apart)

    def _configure(self, request: pb.SubscribeRequest) -> None:
        if not self._configured:
            self._configured = True
            self._tag_filter_text = request.tag_filter
            self._wanted = Wanted(
                bounded("max_messages", request.max_messages, DEFAULT_MESSAGES, MAX_MESSAGES),
                TagFilter.parse(request.tag_filter),
                form_of(request.form),
            )
            return
        for field, given, first in (
            ("tag_filter", request.tag_filter, self._tag_filter_text),
            ("form", request.form, self._wanted.form),
            ("max_messages", request.max_messages, self._wanted.max_messages),
        ):
            if given and given != first:
                raise InvalidArgumentError(field, "is set by the first request of the stream")

    def _add(self, key: QueueKey, offset: int) -> None:
        limit = self._config.max_stream_queues
        if key not in self._offsets and len(self._offsets) >= limit:
            raise InvalidArgumentError("add", f"more than {limit} queues in one stream")
        self._offsets[key] = offset
        self._generation += 1
        self._generations[key] = self._generation
        self._growth.watch(key, self._grew)
        self._make_ready(key)

    def _remove(self, key: QueueKey) -> None:
        if self._offsets.pop(key, None) is not None:
            self._forget(key)

    def _forget(self, key: QueueKey) -> None:
        """It is followed no more."""
        del self._generations[key]
        self._ready.pop(key, None)
        self._growth.unwatch(key, self._grew)

    # --- turns -----------------------------------------------------------------------------

    def _grew(self, key: QueueKey) -> None:
        if key in self._offsets:
            self._make_ready(key)
            self._changed.set()

    def _make_ready(self, key: QueueKey) -> None:
        self._ready[key] = None  # one that is ready already keeps its place

    def _may_read(self) -> bool:
        return (
            bool(self._ready)
            and self._credit_bytes > 0
            and not self._stage.is_draining
            and self._failure is None
        )

    def _next_turn(self) -> _Turn | None:
        if not self._may_read():
            return None
        key, _ = self._ready.popitem(last=False)
        return _Turn(key, self._generations[key], self._offsets[key])

    def _give_back(self, turns: list[_Turn]) -> None:
        """These queues were not read: they are first again, in that order."""
        for turn in reversed(turns):
            if turn.key in self._offsets and turn.key not in self._ready:
                self._ready[turn.key] = None
                self._ready.move_to_end(turn.key, last=False)

    async def _next_response(self) -> list[bytes | Held]:
        """What ready queues have for the client now: its parts, or all of it, which a front holds.
        Empty when they have nothing."""
        response: list[bytes | Held] = []
        if self._memory.is_crowded and self._may_read():
            try:
                await self._memory.room_to_send()
            except MemoryFullError:
                return response  # `run` comes back
        stop_s = perf_counter() + FULL_S
        room = FULL_BYTES
        while room > 0 and (turn := self._next_turn()) is not None:
            found: Pulled | Aside | Exception | None
            if self._front is not None and not self._is_cold(turn):
                found = await self._pull_in_front(turn, None if response else self._front)
                if found is None:
                    self._give_back([turn])
                    break
            elif self._needs_worker(turn):
                if response:
                    self._give_back([turn])
                else:
                    await self._take_turns_in_worker(turn, response)
                break
            else:
                found = self._pull(turn, self._turn_bytes())
            if isinstance(found, Pulled) and is_laborious(found, self._wanted.form):
                outcome = await self._reader.threads.run(self._encode, turn, found)
                self._settle(turn, outcome, response)
                break
            room -= self._settle(turn, self._encode(turn, found), response)
            if perf_counter() >= stop_s or isinstance(found, Aside):
                break
        return response

    def _turn_bytes(self) -> int:
        return min(self._credit_bytes, TURN_BYTES)

    def _is_cold(self, turn: _Turn) -> bool:
        return self._reader.is_cold(turn.key, turn.offset)

    def _needs_worker(self, turn: _Turn) -> bool:
        return self._reader.needs_worker(turn.key, turn.offset, self._turn_bytes(), self._wanted)

    async def _take_turns_in_worker(self, first: _Turn, response: list[bytes | Held]) -> None:
        turns = [first]
        rest: list[_Turn] = []
        while len(turns) < WORKER_TURNS and (turn := self._next_turn()) is not None:
            if not self._needs_worker(turn):
                rest.append(turn)
                break
            turns.append(turn)
        limit = self._credit_bytes

        def read(aside: bool) -> list[_Read | Exception]:  # noqa: FBT001 - of a callback
            found: list[_Read | Exception] = []
            taken = 0
            for turn in turns:
                # What another process encodes is a response of its own.
                max_bytes = min(limit - taken, TURN_BYTES)
                pulled = self._pull(turn, max_bytes, aside=aside and not found)
                one = self._encode(turn, pulled)
                found.append(one)
                if isinstance(one, _Read):
                    taken += one.cost_bytes
                if taken >= min(limit, FULL_BYTES) or isinstance(pulled, Aside):
                    break
            return found

        found = await self._reader.in_worker(first.key, first.offset, read, _bytes_of)
        self._give_back(turns[len(found) :] + rest)
        for turn, outcome in zip(turns, found, strict=False):
            self._settle(turn, outcome, response)

    async def _pull_in_front(
        self, turn: _Turn, front: FrontReads | None
    ) -> Pulled | Aside | Exception | None:
        """Read the queue. What the front reads is a response of its own; without it, None where
        there is much."""
        try:
            self._caller.subscribes(turn.key[0])
            return await self._reader.pull_in_front(
                front,
                *(turn.key, turn.offset, self._turn_bytes(), self._wanted),
                may_wait=True,
                in_stream=True,
            )
        except Exception as error:  # noqa: BLE001 - the other queues go on
            return error

    def _pull(
        self, turn: _Turn, max_bytes: int, *, aside: bool = False
    ) -> Pulled | Aside | Exception:
        """Read the queue. In the loop or a worker."""
        try:
            self._caller.subscribes(turn.key[0])  # each time: a right may be taken away
            place = turn.key, turn.offset, max_bytes, self._wanted
            if aside:
                return self._reader.pull_aside(*place, in_stream=True)
            return self._reader.pull(*place, may_wait=True)
        except Exception as error:  # noqa: BLE001 - the other queues go on
            return error

    def _encode(self, turn: _Turn, pulled: Pulled | Aside | Exception) -> _Read | Exception:
        """What a response says of it. In the loop or a worker."""
        if isinstance(pulled, Exception):
            return pulled
        if isinstance(pulled, Aside):
            plan, (count, cost_bytes, data) = pulled
            return _Read(plan.next_offset, plan.max_offset, count, data, cost_bytes)
        place = pulled.next_offset, pulled.max_offset, len(pulled.records)
        if pulled.status is PullStatus.NO_NEW_MESSAGE:
            return _Read(*place, None, 0)
        try:
            return _Read(*place, *queue_batch_out(*turn.key, pulled, self._wanted.form))
        except Exception as error:  # noqa: BLE001 - the other queues go on
            return error

    def _settle(self, turn: _Turn, outcome: _Read | Exception, response: list[bytes | Held]) -> int:
        """Move the queue on by what was read, or drop it; returns the bytes of credit taken."""
        key = turn.key
        if self._generations.get(key) != turn.generation:  # moved or removed while it was read
            if isinstance(outcome, _Read) and isinstance(outcome.batch, Held):
                outcome.batch.drop()
            return 0
        if isinstance(outcome, Exception):
            self._remove(key)
            error = batch_error(self._metrics, METHOD, outcome, self._call_id)
            refused = pb.QueueBatch(topic=key[0], queue_id=key[1], error=error)
            response.append(pb.SubscribeResponse(queues=[refused]).SerializeToString())
            return 0
        next_offset, max_offset, message_count, batch, cost_bytes = outcome
        if batch is None:
            return 0
        response.append(batch)
        self._offsets[key] = next_offset
        self._credit_bytes -= cost_bytes
        if next_offset < max_offset:
            self._make_ready(key)
        self._metrics.pulled(key[0], message_count, cost_bytes)
        self._caller.took_messages(message_count)
        return cost_bytes
