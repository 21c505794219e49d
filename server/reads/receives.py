"""Receives: messages of shared groups, handed over to one of those who wait for them.

The store decides in turns which messages are whose, and reads them: it waits for the disk, and for
the turn before. So it is asked in threads; calls of one moment share a turn there.

A message that is handed over and not answered with is nobody's until its time is over. So it is
looked whether the caller still waits when its thread has come, and what it can be told no more is
given back.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from server.access import ResourceKind, Role, asker, current_caller
from server.wire import (
    DEFAULT_PULL_BYTES,
    DEFAULT_PULL_MESSAGES,
    PAGE_BYTES,
    EncodedDeliveries,
    bounded,
    encode_deliveries,
    form_of,
)
from server.workers import Workers
from store.errors import StoreError
from store.groups import MOST_RECEIVED
from store.reads import TagFilter

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcq_client.pb.v1 import shared_groups_pb2 as pb
    from server.edge import RequestMemory
    from server.metrics import CallMetrics
    from store.groups import Received
    from store.message_store import MessageStore

logger = logging.getLogger(__name__)

#: Calls of the store that are under way: so many share a turn at most. Each has an answer in
#: memory that is not counted yet.
RECEIVE_THREADS = 8
#: What a receive may ask for; it gets PAGE_BYTES at most.
MAX_RECEIVE_BYTES = 64 << 20


class Answer(Protocol):
    """An answer of one receive, encoded."""

    @property
    def message_count(self) -> int: ...

    @property
    def cost_bytes(self) -> int:
        """Of the records."""


T = TypeVar("T", bound=Answer)


class Receive(NamedTuple, Generic[T]):
    """What one call asks for."""

    group: str
    topic: str
    max_messages: int
    max_bytes: int
    invisible_ms: int | None
    tag_filter: TagFilter | None
    encode: Callable[[Received], T]  # in a thread


class _Look:
    """A look for messages in a thread, and whether anybody still waits for what it finds."""

    __slots__ = ("is_given_up", "received")

    def __init__(self) -> None:
        self.is_given_up = False
        self.received: Received | None = None


class Receives:
    """Owned by the event loop's thread."""

    def __init__(self, store: MessageStore, memory: RequestMemory, metrics: CallMetrics) -> None:
        self._store = store
        self._groups = store.groups
        self._memory = memory
        self._metrics = metrics
        self._threads = Workers(RECEIVE_THREADS, "receive")
        self._giving_back: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """Receives that have no thread yet."""
        return self._threads.waiting

    def close(self) -> None:
        """Wait for those under way. Blocks."""
        self._threads.close()

    async def receive(self, request: pb.ReceiveRequest) -> bytes:
        """The encoded response. Raises as `take`."""
        return (await self.take(_wanted(request))).data

    async def take(self, wanted: Receive[T]) -> T:
        """The answer. Raises what SharedGroups.receive raises, and MemoryFullError."""
        caller = current_caller()
        caller.check(Role.SUBSCRIBE, ResourceKind.GROUP, wanted.group)
        caller.subscribes(wanted.topic)
        _, found = await self._look(wanted)
        self._metrics.pulled(wanted.topic, found.message_count, found.cost_bytes)
        self._metrics.count("messages_received", found.message_count)
        caller.took_messages(found.message_count)
        return found

    async def _look(self, wanted: Receive[T]) -> tuple[Received, T]:
        """What there is now. Cancelled, it has nothing handed over."""
        who = asker()
        while True:
            await self._memory.room_to_send(who)
            look = _Look()
            running = asyncio.ensure_future(self._threads.run(self._receive, wanted, look, who))
            try:
                found = await asyncio.shield(running)
            except asyncio.CancelledError:
                look.is_given_up = True
                running.add_done_callback(partial(self._nobody_waits, wanted.group, look))
                raise
            if found is not None:
                return found

    def _receive(self, wanted: Receive[T], look: _Look, who: str) -> tuple[Received, T] | None:
        """In a thread. None: nobody waits for it any more, or there is no room for the answer."""
        if look.is_given_up or self._memory.is_crowded(who):
            return None
        look.received = received = self._groups.receive(
            wanted.group,
            wanted.topic,
            max_messages=wanted.max_messages,
            max_bytes=wanted.max_bytes,
            invisible_ms=wanted.invisible_ms,
            tag_filter=wanted.tag_filter,
        )
        return received, wanted.encode(received)

    def _nobody_waits(self, group: str, look: _Look, ended: asyncio.Future[object]) -> None:
        """What was handed over to a caller who went away meanwhile may be delivered again."""
        if ended.cancelled() or ended.exception() is not None:
            return
        if look.received is None or not look.received.deliveries:
            return
        handles = [one.handle for one in look.received.deliveries]
        task = asyncio.create_task(self._given_back(group, handles))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    async def _given_back(self, group: str, handles: list[str]) -> None:
        try:
            await self._threads.run(self._groups.give_back, group, handles, 0, wait=False)
        except StoreError as error:  # they are delivered again when their time is over
            logger.warning(
                "group %r: %d messages that nobody took could not be given back: %s",
                group,
                len(handles),
                error,
            )


def _wanted(request: pb.ReceiveRequest) -> Receive[EncodedDeliveries]:
    """Raises InvalidArgumentError."""
    max_bytes = bounded("max_bytes", request.max_bytes, DEFAULT_PULL_BYTES, MAX_RECEIVE_BYTES)
    return Receive(
        request.group,
        request.topic,
        bounded("max_messages", request.max_messages, DEFAULT_PULL_MESSAGES, MOST_RECEIVED),
        min(max_bytes, PAGE_BYTES),
        request.invisible_ms if request.HasField("invisible_ms") else None,
        TagFilter.parse(request.tag_filter),
        partial(encode_deliveries, form=form_of(request.form)),
    )
