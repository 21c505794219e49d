"""Receives: delivers messages of shared groups to waiting receivers.

The store decides in turns which messages go to whom, and reads them. The loop does this if it needs
no wait, neither for the disk nor for the previous turn; otherwise threads do, and concurrent calls
share a turn there.

A message that is delivered but whose response is never sent is unavailable until its lease expires.
So each thread checks first whether the caller still waits, and messages that cannot be sent any
more are given back.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from kvcq_client.pb.v1 import kvcq_pb2
from server.access import ResourceKind, Role, asker, current_caller
from server.reads.lines import Lines
from server.reads.members import Members
from server.reads.new_groups import NewGroups
from server.wire import (
    DEFAULT_PULL_BYTES,
    DEFAULT_PULL_MESSAGES,
    MAX_ACKNOWLEDGED,
    PAGE_BYTES,
    EncodedDeliveries,
    bounded,
    encode_deliveries,
    form_of,
    not_more,
)
from server.workers import Workers
from store.errors import (
    AppendWouldWaitError,
    InvalidArgumentError,
    StoreError,
    UnknownTopicError,
)
from store.groups import MOST_RECEIVED, Outcome, Received
from store.light_queue import is_light
from store.reads import Filter, SqlFilter, parse_filter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvcq_client.pb.v1 import shared_groups_pb2 as pb
    from server.edge import RequestMemory
    from server.metrics import CallMetrics
    from server.puts import Durability
    from server.reads.queue_growth import QueueGrowth
    from server.stage import Stage
    from store.message_store import MessageStore
    from store.metadata import SharedGroup

logger = logging.getLogger(__name__)

#: Number of calls of the store at a time, which may share a turn. Each has a response in memory
#: that is not counted yet.
RECEIVE_THREADS = 8
#: A receive for more messages runs in a thread, because it would block the loop for too long.
HERE_WHOLE = 256
HERE_DECODED = 64
#: Maximum that a receive may ask for; it gets PAGE_BYTES at most.
MAX_RECEIVE_BYTES = 64 << 20


class Answer(Protocol):
    """The encoded response to one receive."""

    @property
    def message_count(self) -> int: ...

    @property
    def cost_bytes(self) -> int:
        """Size of the records."""


T = TypeVar("T", bound=Answer)


class Receive(NamedTuple, Generic[T]):
    """The arguments of one call."""

    group: str
    topic: str
    max_messages: int  # 0: it only acknowledges, and gets what the same attempt was given before
    max_bytes: int
    invisible_ms: int | None
    tag_filter: Filter | None
    encode: Callable[[Received], T]  # in a thread
    attempt_id: str = ""
    skip_damaged: bool = False
    #: Maximum number of messages that are looked up and encoded in the loop.
    most_here: int = HERE_DECODED
    client_id: str = ""  # for lite topics of this topic, to which the client is subscribed
    acknowledge: Sequence[str] = ()  # handles; in the same turn, before it receives


class _Found(NamedTuple, Generic[T]):
    """The result of a look; its first two fields are those of a Found."""

    is_more: bool
    next_look_ms: int | None
    again: int  # messages that were handed over before
    nonces: Sequence[int]  # of the leases of its messages
    answer: T
    received: Received
    is_told: bool = False  # an answer although it has no message


class _Look:
    """A receive that is in a thread, or whose acknowledgements wait for the disk: its result, and
    whether its caller is still there."""

    __slots__ = ("is_given_up", "is_made_again", "received")

    def __init__(self) -> None:
        self.is_given_up = False
        self.is_made_again = False  # the attempt was repeated, and that call has the same handles
        self.received: Received | None = None


class Receives:
    """Runs receives of shared groups. Owned by the event loop's thread."""

    def __init__(
        self,
        store: MessageStore,
        memory: RequestMemory,
        metrics: CallMetrics,
        growth: QueueGrowth,
        stage: Stage,
        durability: Durability,
    ) -> None:
        self._groups = store.groups
        self._durability = durability
        self._lite = store.lite
        self._has_group = store.has_group
        self._time_ms = store.lease_time_ms
        self._new_groups = NewGroups()
        self._memory = memory
        self._metrics = metrics
        self._threads = Workers(RECEIVE_THREADS, "receive")
        self._giving_back: set[asyncio.Task[None]] = set()
        # In threads, or waiting for the disk, by group and attempt id.
        self._attempts: dict[tuple[str, str], _Look] = {}
        #: Who receives.
        self.members = Members(store.lease_time_ms)
        #: The waiting receives.
        self.lines = Lines(growth, stage, store.lease_time_ms, store.has_group)
        self._stops: list[Callable[[], None]] = [
            self._groups.on_change(self.lines.changed),
            self._lite.subscriptions.add_listener(
                lambda group, client_id: self.lines.changed(group, _lite_line(client_id))
            ),
        ]

    @property
    def waiting(self) -> int:
        """Number of receives that wait for a thread."""
        return self._threads.waiting

    def close(self) -> None:
        """Wait for running receives. Blocks."""
        for stop in self._stops:
            stop()
        self._threads.close()

    async def receive(self, request: pb.ReceiveRequest, wait_s: float) -> bytes:
        """The encoded response. Raises like `take`."""
        return (await self.take(_wanted(request), wait_s)).data

    async def make_group(self, group: str, settings: SharedGroup) -> None:
        """Create a missing group for a receive. Raises TooManyGroupsError, and what
        SharedGroups.create raises."""

        def make(who: str) -> None:
            self._new_groups.check(who, group)
            self._groups.create(group, settings)
            self._new_groups.made(who, group)

        await self._threads.run(make, asker())

    def receive_now(self, request: pb.ReceiveRequest) -> bytes | None:
        """Like `receive`, without a turn of the loop; None, and nothing delivered, if it would take
        one.

        Raises like `take`, except MemoryFullError.
        """
        wanted = _wanted(request)
        if wanted.client_id:
            return None
        line = self.lines.find(wanted.group, wanted.topic)
        if wanted.acknowledge:
            if not self._durability.is_at_append:
                return None
            if line is not None:
                wanted = wanted._replace(max_messages=0)
        elif request.wait_ms and line is not None:
            return None  # others wait, and were first
        self._check(wanted)
        found = self._look_here(wanted)
        if found is None:
            return None
        if request.wait_ms and not (found.answer.message_count or wanted.acknowledge):
            return None
        if line is not None:
            line.schedule_look(found.next_look_ms)
        return self._taken(wanted, found).data

    async def take(self, wanted: Receive[T], wait_s: float = 0.0) -> T:
        """The response: when a message arrives or the time is over; with acknowledgements, once
        they are durable.

        Raises what SharedGroups.receive raises, FlushError, FlushTimeoutError, and MemoryFullError.
        """
        if wanted.acknowledge:
            if self.lines.find(wanted.group, wanted.topic) is not None:
                wanted = wanted._replace(max_messages=0)  # others wait, and were first
            found = await self._take_now(wanted)
            await self._until_durable(wanted, found)
        elif wait_s:
            with self.members.waiting(wanted.group):
                found = await self._take_waiting(wanted, wait_s)
        else:
            found = await self._take_now(wanted)
        return self._taken(wanted, found)

    def _taken(self, wanted: Receive[T], found: _Found[T]) -> T:
        """The response, counted."""
        self.members.given(wanted.group, found.nonces)
        if count := found.answer.message_count:
            self._metrics.pulled(wanted.topic, count, found.answer.cost_bytes)
            self._metrics.groups.delivered(wanted.group, count, found.again)
            self._metrics.count("messages_received", count)
            self._metrics.count("messages_received_again", found.again)
            current_caller().count_messages(count)
        if wanted.acknowledge:
            done = found.received.outcomes.count(Outcome.DONE)
            self._metrics.acknowledged(wanted.group, done)
        return found.answer

    async def _until_durable(self, wanted: Receive[T], found: _Found[T]) -> None:
        """Wait until the acknowledgements are as durable as a put. The response counts as waiting
        to be sent, so that a slow disk does not fill the memory with responses.

        If that fails, a repeated attempt gets the messages again, and other receives get them when
        their leases end. Without an attempt id, or if the caller went away and has not repeated the
        attempt, they are given back.
        """
        look = _Look()
        look.received = found.received
        size, who = found.answer.cost_bytes, asker()
        if wanted.attempt_id:
            self._attempts[wanted.group, wanted.attempt_id] = look
        self._memory.sends(size, who)
        try:
            await self._durability.wait(found.received.end_offset)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) or not wanted.attempt_id:
                self._release_unclaimed(wanted, look)
            raise
        finally:
            self._memory.sent(size, who)
            self._forget(wanted, look)

    async def _take_now(self, wanted: Receive[T]) -> _Found[T]:
        found: _Found[T] | None = None
        while found is None:
            if wanted.acknowledge and self._memory.is_crowded(asker()):
                # Acknowledgements need no room, and the leases would end while they wait for it.
                wanted = wanted._replace(max_messages=0, attempt_id="")
            if wanted.max_messages:
                await self._memory.room_to_send(asker())
            found = await self._look(wanted)
        line = self.lines.find(wanted.group, await self._line_of(wanted))
        if line is not None:
            line.schedule_look(found.next_look_ms)
        return found

    async def _take_waiting(self, wanted: Receive[T], wait_s: float) -> _Found[T]:
        """Receive within that time. Draining ends the wait; a deletion ends it with an error.

        A light queue without messages is empty, not unknown.
        """
        until_s = asyncio.get_running_loop().time() + wait_s
        name = await self._line_of(wanted)
        line = self.lines.enter(wanted.group, name)
        empty = Received([], None)
        nothing = _Found(False, None, 0, (), wanted.encode(empty), empty)  # noqa: FBT003 - its fields
        found: _Found[T] | None = None
        try:
            while True:
                await self._memory.room_to_send(asker())
                turn = await line.turn(until_s, keeps_place=found is not None)
                if turn is None:
                    return nothing
                found = None
                try:
                    found = await self._look(wanted)
                    line.has_begun = line.has_begun or found is not None
                except UnknownTopicError:
                    if line.has_begun or not is_light(wanted.topic):
                        raise
                    found = nothing
                finally:
                    line.looked(turn, found)
                if found is not None and (found.answer.message_count or found.is_told):
                    return found
        finally:
            self.lines.leave(wanted.group, name, line)

    async def _line_of(self, wanted: Receive[T]) -> str:
        """The name of its line: each client of lite topics has its own, except in a wildcard group,
        whose clients share one."""
        if not wanted.client_id:
            return wanted.topic
        # Behind others it may never look, while there is nothing to receive.
        self._lite.subscriptions.waits(wanted.group, wanted.client_id, self._time_ms())
        is_wildcard = self._lite.subscriptions.is_wildcard(wanted.group)
        if is_wildcard is None:  # this is its first client
            is_wildcard = await self._threads.run(self._lite.is_wildcard, wanted.group)
        return _lite_line("" if is_wildcard else wanted.client_id)

    async def _look(self, wanted: Receive[T]) -> _Found[T] | None:
        """Receive what is available now; None if there was no room for a response. If cancelled,
        nothing is delivered."""
        self._check(wanted)  # also where it was let in: it may have waited for long since
        found = None if wanted.client_id else self._look_here(wanted)
        if found is not None:
            return found
        look = _Look()
        if wanted.attempt_id:
            self._attempts[wanted.group, wanted.attempt_id] = look
        running = asyncio.ensure_future(self._threads.run(self._receive, wanted, look, asker()))
        running.add_done_callback(partial(self._looked, wanted, look))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            look.is_given_up = True
            if running.done():
                self._release_unclaimed(wanted, look)
            raise

    def _check(self, wanted: Receive[T]) -> None:
        caller = current_caller()
        caller.check(Role.SUBSCRIBE, ResourceKind.GROUP, wanted.group)
        caller.subscribes(wanted.topic)

    def _look_here(self, wanted: Receive[T]) -> _Found[T] | None:
        """Like `_look`, in the loop; None if that may take long, or would wait."""
        before = self._attempts.get((wanted.group, wanted.attempt_id))
        if before is not None:
            before.is_made_again = True
        is_long = (
            wanted.max_messages > wanted.most_here
            or wanted.client_id  # for lite topics, which do not support `at_once`
            or isinstance(wanted.tag_filter, SqlFilter)
            or not self._has_group(wanted.group)
            or (wanted.max_messages > 0 and self._memory.is_crowded(asker()))
        )
        if is_long:
            return None
        try:
            return self._found(wanted, self._ask(wanted, at_once=True))
        except AppendWouldWaitError:
            return None

    def _ask(self, wanted: Receive[T], *, at_once: bool = False) -> Received:
        if wanted.client_id:
            return self._lite.receive(
                wanted.group,
                wanted.client_id,
                parent=wanted.topic,
                max_messages=wanted.max_messages,
                max_bytes=wanted.max_bytes,
                invisible_ms=wanted.invisible_ms,
                attempt_id=wanted.attempt_id,
                skip_damaged=wanted.skip_damaged,
            )
        if not (wanted.max_messages or wanted.attempt_id):
            outcomes, end = self._groups.acknowledge(
                wanted.group, wanted.acknowledge, wait=False, at_once=at_once
            )
            return Received([], None, outcomes=outcomes, end_offset=end)
        return self._groups.receive(
            wanted.group,
            wanted.topic,
            max_messages=wanted.max_messages,
            max_bytes=wanted.max_bytes,
            invisible_ms=wanted.invisible_ms,
            tag_filter=wanted.tag_filter,
            attempt_id=wanted.attempt_id,
            skip_damaged=wanted.skip_damaged,
            acknowledge=wanted.acknowledge,
            wait=False,
            at_once=at_once,
        )

    def _receive(self, wanted: Receive[T], look: _Look, who: str) -> _Found[T] | None:
        """Like `_look`, in a thread. None if the caller is gone, or there is no room for the
        response."""
        if look.is_given_up or (wanted.max_messages > 0 and self._memory.is_crowded(who)):
            return None
        is_new = not self._has_group(wanted.group)
        if is_new:
            self._new_groups.check(who, wanted.group)
        look.received = received = self._ask(wanted)
        if is_new:
            self._new_groups.made(who, wanted.group)
        return self._found(wanted, received)

    def _found(self, wanted: Receive[T], received: Received) -> _Found[T]:
        answer = wanted.encode(received)
        is_full = (
            answer.message_count >= wanted.max_messages or answer.cost_bytes >= wanted.max_bytes
        )
        ends = [one.until_ms for one in received.deliveries]
        is_more = received.next_look_ms is not None and received.next_look_ms <= self._time_ms()
        if received.next_look_ms is not None and not is_more:
            ends.append(received.next_look_ms)
        again = sum(one.deliveries > 1 for one in received.deliveries)
        next_ms, is_told = min(ends, default=None), bool(received.lost)
        is_more = is_more or is_full
        return _Found(is_more, next_ms, again, received.nonces, answer, received, is_told)

    def _looked(self, wanted: Receive[T], look: _Look, ended: asyncio.Future[object]) -> None:
        self._forget(wanted, look)
        if look.is_given_up and not ended.cancelled() and ended.exception() is None:
            self._release_unclaimed(wanted, look)

    def _forget(self, wanted: Receive[T], look: _Look) -> None:
        """Stop tracking the attempt, unless it was repeated meanwhile."""
        attempt = wanted.group, wanted.attempt_id
        if self._attempts.get(attempt) is look:
            del self._attempts[attempt]

    def _release_unclaimed(self, wanted: Receive[T], look: _Look) -> None:
        """Make messages available again that were delivered to a caller that is gone."""
        received, look.received = look.received, None
        if look.is_made_again or received is None or not received.deliveries:
            return
        handles = [one.handle for one in received.deliveries]
        task = asyncio.create_task(self._given_back(wanted.group, handles))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    async def _given_back(self, group: str, handles: list[str]) -> None:
        try:
            await self._threads.run(
                self._groups.give_back, group, handles, 0, not_begun=True, wait=False
            )
        except StoreError as error:  # they are delivered again when their leases end
            logger.warning(
                "group %r: %d messages that nobody took could not be given back: %s",
                group,
                len(handles),
                error,
            )


def _lite_line(client_id: str) -> str:
    """A name that no topic can have."""
    return "\0" + client_id


def _wanted(request: pb.ReceiveRequest) -> Receive[EncodedDeliveries]:
    """Raises InvalidArgumentError."""
    if request.client_id and (request.tag_filter not in ("", "*") or request.sql_filter):
        field = "sql_filter" if request.sql_filter else "tag_filter"
        raise InvalidArgumentError(field, "is not for lite topics: their messages are for one task")
    if request.client_id and request.acknowledge:
        raise InvalidArgumentError("acknowledge", "is not for lite topics: use Acknowledge")
    not_more("acknowledge", request.acknowledge, MAX_ACKNOWLEDGED, "handles")
    max_bytes = bounded("max_bytes", request.max_bytes, DEFAULT_PULL_BYTES, MAX_RECEIVE_BYTES)
    return Receive(
        request.group,
        request.topic,
        bounded("max_messages", request.max_messages, DEFAULT_PULL_MESSAGES, MOST_RECEIVED),
        min(max_bytes, PAGE_BYTES),
        request.invisible_ms if request.HasField("invisible_ms") else None,
        parse_filter(request.tag_filter, request.sql_filter),
        partial(encode_deliveries, form=form_of(request.form), of_lite=bool(request.client_id)),
        request.attempt_id,
        request.skip_damaged,
        HERE_WHOLE if request.form == kvcq_pb2.RECORD_FORM_WHOLE else HERE_DECODED,
        request.client_id,
        list(request.acknowledge),
    )
