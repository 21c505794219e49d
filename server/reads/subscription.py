"""Subscribe: one stream follows many queues, from any offset, as fast as the client grants credit.

A queue is *ready* (there may be something to read), *idle* (read to its end), or *dropped* (its
error was sent). Ready queues take turns: a turn is one read of one queue, and a response contains
as many turns as fill it. So many short queues cost few responses, and a long queue does not starve
a short one. A turn costs its bytes of records in credit; without credit nothing is read. Responses
without records cost nothing.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.access import ResourceKind, Role, asker, current_caller
from server.edge import batch_error
from server.errors import MemoryFullError
from server.reads.reader import ENOUGH_BYTES, Place, Wanted
from server.reads.ready_queues import ReadyQueues
from server.wire import bounded, form_of, in_range, not_negative
from store.errors import InvalidArgumentError
from store.format import LONGEST_NAME, check_length
from store.reads import Filter, parse_filter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence

    from server.edge import RequestMemory
    from server.metrics import CallMetrics
    from server.reads.group_readers import GroupReader, GroupReaders
    from server.reads.queue_growth import QueueGrowth, QueueKey
    from server.reads.reader import QueueReader
    from server.stage import Stage
    from server.wire import Encoded

METHOD = "Subscribe"
DEFAULT_MESSAGES = 1024
MAX_MESSAGES = 10_000
#: Maximum for a turn, however much credit there is: queues take turns, and memory stays bounded.
TURN_BYTES = 1 << 20
#: A response takes no further turn once it took so long to read: the loop has other calls to serve.
FULL_S = 0.005
#: Queues that are added or removed in one turn of the loop: up to 10 us each, and 15 ms more when
#: the dicts grow to 100,000.
QUEUES_A_TURN = 250
#: Turns of one visit to a thread: the way there and back costs more than to read a short queue.
THREAD_TURNS = 64
#: Maximum of one stream; one queue takes about 500 bytes.
MAX_QUEUES = 1_000_000
#: Maximum credit that a stream may have.
MAX_CREDIT_BYTES = 1 << 30


class _Position(NamedTuple):
    """Where the next read of a queue begins. A new object each time the queue is moved."""

    offset: int
    given_at: int | None  # of the response that the offset is from


class _Turn(NamedTuple):
    """One read of one queue."""

    key: QueueKey
    position: _Position


class Subscription:
    """One stream's queues, credit, and turns. Owned by the event loop's thread."""

    def __init__(
        self,
        reader: QueueReader,
        growth: QueueGrowth,
        memory: RequestMemory,
        stage: Stage,
        metrics: CallMetrics,
        call_id: str,
        groups: GroupReaders,
        address: str,
    ) -> None:
        self._groups = groups
        self._address = address
        self._in_group: GroupReader | None = None
        self._notice = b""  # an encoded response to send before any other
        self._reader = reader
        self._memory = memory
        self._stage = stage
        self._metrics = metrics
        self._call_id = call_id
        self._caller = current_caller()
        self._positions: dict[QueueKey, _Position] = {}  # of the followed queues
        self._queues = ReadyQueues(growth, stage)
        self._credit_bytes = 0
        self._ended = False
        self._failure: Exception | None = None
        # Fixed by the first request.
        self._configured = False
        self._filters = "", ""  # by tag, by SQL condition
        self._wanted = _wanted(DEFAULT_MESSAGES, None, pb.RECORD_FORM_DECODED)

    async def run(
        self, requests: AsyncIterator[pb.SubscribeRequest]
    ) -> AsyncGenerator[bytes, None]:
        """Responses, until the client ends its side or the server drains."""
        taker = asyncio.create_task(self._take(requests), name="subscription")
        try:
            while True:
                if self._notice:
                    notice, self._notice = self._notice, b""
                    yield notice
                response = await self._next_response()
                if response:
                    yield response[0] if len(response) == 1 else b"".join(response)
                    continue
                if self._may_read():
                    await asyncio.sleep(0)  # many queues that had nothing new: let others run
                    continue
                if self._failure is not None:
                    raise self._failure
                if self._ended or self._stage.is_draining:
                    return
                await self._queues.until_any()
        finally:
            taker.cancel()
            if self._in_group is not None:
                self._groups.leave(self._in_group)
            self._queues.close()
            self._leave_all()

    # --- requests --------------------------------------------------------------------------

    async def _take(self, requests: AsyncIterator[pb.SubscribeRequest]) -> None:
        try:
            async for request in requests:
                await self._apply(request)
                del request  # the next one may be long in coming
                self._queues.wake()
        except Exception as error:  # noqa: BLE001 - `run` raises it to the caller
            self._failure = error
        self._ended = True
        self._queues.wake()

    async def _apply(self, request: pb.SubscribeRequest) -> None:
        """Queues are added in chunks, since the loop has other calls to serve."""
        self._configure(request)
        add, remove = request.add, request.remove
        for begin in range(0, len(add), QUEUES_A_TURN):
            for index in range(begin, min(begin + QUEUES_A_TURN, len(add))):
                queue = add[index]
                # Checked here, because a queue of that name would be stored, and never read.
                check_length(queue.topic, f"add[{index}].topic", LONGEST_NAME)
                not_negative(f"add[{index}].queue_id", queue.queue_id)
                not_negative(f"add[{index}].offset", queue.offset)
                given_at = queue.given_at if queue.HasField("given_at") else None
                self._add((queue.topic, queue.queue_id), _Position(queue.offset, given_at))
            await self._rest(len(add))
        if self._in_group is not None and add:
            self._look_for_others(self._in_group, add)
        for begin in range(0, len(remove), QUEUES_A_TURN):
            for queue in remove[begin : begin + QUEUES_A_TURN]:
                self._remove((queue.topic, queue.queue_id))
            await self._rest(len(remove))
        in_range("credit_bytes", request.credit_bytes, 0, MAX_CREDIT_BYTES)
        self._credit_bytes = min(self._credit_bytes + request.credit_bytes, MAX_CREDIT_BYTES)

    async def _rest(self, count: int) -> None:
        if count > QUEUES_A_TURN:
            await asyncio.sleep(0)

    def _leave_all(self) -> None:
        """Release the queues in chunks; freeing a million at once takes 0.6 s."""
        for _ in range(QUEUES_A_TURN):
            if not self._positions:
                return
            self._forget(self._positions.popitem()[0])
        asyncio.get_running_loop().call_soon(self._leave_all)

    def _look_for_others(self, reader: GroupReader, added: Sequence[pb.QueuePosition]) -> None:
        shared = self._groups.shared(reader, ((each.topic, each.queue_id) for each in added))
        if shared is not None:
            other, (topic, queue_id) = shared
            self._notice = pb.SubscribeResponse(
                shared_with=pb.GroupReader(
                    reader=other.reader,
                    address=other.address,
                    since_ms=other.since_ms,
                    topic=topic,
                    queue_id=queue_id,
                )
            ).SerializeToString()

    def _configure(self, request: pb.SubscribeRequest) -> None:
        if not self._configured:
            if request.group:
                self._caller.check(Role.SUBSCRIBE, ResourceKind.GROUP, request.group)
                check_length(request.group, "group", LONGEST_NAME)
                self._reader.check_by_offsets(request.group)
                check_length(request.reader, "reader", LONGEST_NAME)
                self._in_group = self._groups.join(
                    request.group, request.reader, self._address, self._positions
                )
            self._configured = True
            self._filters = request.tag_filter, request.sql_filter
            self._wanted = _wanted(
                bounded("max_messages", request.max_messages, DEFAULT_MESSAGES, MAX_MESSAGES),
                parse_filter(request.tag_filter, request.sql_filter),
                form_of(request.form),
            )
            return
        for field, given, first in (
            ("tag_filter", request.tag_filter, self._filters[0]),
            ("sql_filter", request.sql_filter, self._filters[1]),
            ("form", request.form, self._wanted.form),
            ("group", request.group, "" if self._in_group is None else self._in_group.group),
            ("max_messages", request.max_messages, self._wanted.max_messages),
        ):
            if given and given != first:
                raise InvalidArgumentError(
                    field, "can only be set by the first request of the stream"
                )

    def _add(self, key: QueueKey, position: _Position) -> None:
        if key not in self._positions:
            if len(self._positions) >= MAX_QUEUES:
                raise InvalidArgumentError("add", f"more than {MAX_QUEUES} queues in one stream")
            self._memory.follow_queue()
        self._positions[key] = position
        self._queues.follow(key)

    def _remove(self, key: QueueKey) -> None:
        if self._positions.pop(key, None) is not None:
            self._forget(key)

    def _forget(self, key: QueueKey) -> None:
        self._queues.leave(key)
        self._memory.leave_queue()

    # --- turns -----------------------------------------------------------------------------

    def _may_read(self) -> bool:
        return (
            bool(self._queues)
            and self._credit_bytes > 0
            and not self._stage.is_draining
            and self._failure is None
        )

    def _next_turn(self) -> _Turn | None:
        if not self._may_read():
            return None
        key = self._queues.next()
        return _Turn(key, self._positions[key])

    def _place(self, turn: _Turn) -> Place:
        """The place to read. Raises PermissionDeniedError, since a right may be revoked at any
        time."""
        self._caller.subscribes(turn.key[0])
        max_bytes = min(self._credit_bytes, TURN_BYTES)
        offset, given_at = turn.position
        return Place(turn.key, offset, max_bytes, self._wanted, given_at)

    def _give_back(self, turns: list[_Turn]) -> None:
        """These queues were not read, and may have been removed meanwhile."""
        self._queues.put_back([turn.key for turn in turns if turn.key in self._positions])

    async def _next_response(self) -> list[bytes]:
        """What ready queues have for the client now, in parts. Empty if there is nothing."""
        response: list[bytes] = []
        if self._may_read():
            await self._reader.turns.next()
            try:
                await self._memory.room_to_send(asker())
            except MemoryFullError:
                return response  # `run` comes back
        stop_s = perf_counter() + FULL_S
        room = ENOUGH_BYTES
        while room > 0 and (turn := self._next_turn()) is not None:
            try:
                place = self._place(turn)
                found = self._reader.read_here(place)
            except Exception as error:  # noqa: BLE001 - the other queues go on
                self._drop(turn, error, response)
                continue
            if found is None:
                if response:
                    self._give_back([turn])
                else:
                    await self._read_aside(turn, place, response)
                break
            room -= self._settle(turn, found, response)
            if perf_counter() >= stop_s:
                break
        return response

    async def _read_aside(self, first: _Turn, place: Place, response: list[bytes]) -> None:
        """Read this queue, and those after it that also take long, in one visit to a thread."""
        turns, places = [first], [place]
        while len(turns) < THREAD_TURNS and (turn := self._next_turn()) is not None:
            try:
                place = self._place(turn)
            except Exception as error:  # noqa: BLE001 - the other queues go on
                self._drop(turn, error, response)
                continue
            if not self._reader.takes_long(place):
                self._give_back([turn])
                break
            turns.append(turn)
            places.append(place)
        outcomes = await self._reader.read_aside(places, self._credit_bytes)
        self._give_back(turns[len(outcomes) :])
        for turn, outcome in zip(turns, outcomes, strict=False):
            if isinstance(outcome, Exception):
                self._drop(turn, outcome, response)
            else:
                self._settle(turn, outcome, response)

    def _drop(self, turn: _Turn, error: Exception, response: list[bytes]) -> None:
        """Stop following the queue, and send the client the reason."""
        key = turn.key
        if self._positions.get(key) is not turn.position:
            return  # moved or removed while it was read
        self._remove(key)
        told = batch_error(self._metrics, METHOD, error, self._call_id)
        refused = pb.QueueBatch(topic=key[0], queue_id=key[1], error=told)
        response.append(pb.SubscribeResponse(queues=[refused]).SerializeToString())

    def _settle(self, turn: _Turn, found: Encoded, response: list[bytes]) -> int:
        """Advance the queue by what was read. Returns the bytes of credit used."""
        key = turn.key
        if self._positions.get(key) is not turn.position:
            return 0
        # Also where there was nothing: from here on it is this queue, no later one of the name.
        self._positions[key] = _Position(found.next_offset, found.given_at)
        if not found.has_news:
            return 0
        response.append(found.data)
        self._credit_bytes -= found.cost_bytes
        if found.next_offset < found.max_offset:
            self._queues.make_ready(key)
        self._metrics.pulled(key[0], found.message_count, found.cost_bytes)
        self._caller.count_messages(found.message_count)
        return found.cost_bytes


def _wanted(max_messages: int, matching: Filter | None, form: pb.RecordForm) -> Wanted:
    return Wanted(max_messages, matching, form, in_stream=True, may_begin=True)
