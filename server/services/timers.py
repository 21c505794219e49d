"""Delayed messages: put, recall, list.

Runs in threads, because a put of them waits for the append lock. The response waits in the loop
until it is durable, like a put's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import timers_pb2 as pb
from kvcq_client.pb.v1 import timers_pb2_grpc
from server.services.paging import cursor_of
from server.wire import (
    bounded,
    delayed_in,
    host_of_peer,
    not_more,
    recalls_out,
    waiting_out,
)
from store.held import MOST_LISTED, MOST_TIMERS

if TYPE_CHECKING:
    from server.edge import Context
    from server.puts import Puts
    from server.wire import Budget
    from server.workers import Pools
    from store.message import Message
    from store.message_store import MessageStore

_DEFAULT_LISTED = 100


class TimerService(timers_pb2_grpc.TimerServiceServicer):
    """The calls on delayed messages. Owned by the event loop's thread."""

    def __init__(self, store: MessageStore, puts: Puts, pools: Pools) -> None:
        self._timers = store.timers
        self._puts = puts
        self._pools = pools

    async def PutDelayed(
        self, request: pb.PutDelayedRequest, context: Context
    ) -> pb.PutDelayedResponse:
        not_more("messages", request.messages, MOST_TIMERS, "messages")
        born_host = host_of_peer(context.peer())

        def make(budget: Budget) -> tuple[list[Message], list[int]]:
            now_ms = self._timers.now_ms()
            return delayed_in(request, born_host, self._puts.choose, budget, now_ms)

        done = await self._puts.put_delayed(make)
        return pb.PutDelayedResponse(handles=done.handles, deliver_at_ms=done.due_ms)

    async def Recall(self, request: pb.RecallRequest, context: Context) -> pb.RecallResponse:
        not_more("handles", request.handles, MOST_TIMERS, "handles")
        topic, handles = request.topic, list(request.handles)
        done = await self._pools.settling.run(
            lambda: self._timers.recall(topic, handles, wait=False)
        )
        await self._puts.durability.wait(done.end_offset)
        return pb.RecallResponse(outcomes=recalls_out(done.outcomes))

    async def ListDelayed(self, request: pb.ListDelayedRequest, context: Context) -> bytes:
        size = bounded("page_size", request.page_size, _DEFAULT_LISTED, MOST_LISTED)
        topic, cursor = request.topic, cursor_of(request.page_token)

        def page() -> pb.ListDelayedResponse:
            found = self._timers.page(topic, cursor, size)
            return pb.ListDelayedResponse(
                messages=map(waiting_out, found.found),
                next_page_token="" if found.cursor is None else found.cursor.hex(),
                pending=self._timers.count(),
                now_ms=self._timers.now_ms(),
            )

        return await self._pools.scans.encoded(page)
