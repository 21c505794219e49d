"""Groups that share their work: receive, acknowledge, hold on, give back; settings.

What changes a group waits for the store's turn and for the disk: threads do it. Acknowledgements
wait until they are durable in the loop, as puts do.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import shared_groups_pb2 as pb
from kvcq_client.pb.v1 import shared_groups_pb2_grpc
from server.errors import NotServedError
from server.wire import (
    not_more,
    of_settings,
    outcomes_out,
    page_size_of,
    settings_in,
    settings_out,
)
from store.errors import GroupKindError, InvalidArgumentError
from store.groups import MOST_HANDLES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from server.edge import Context
    from server.metrics import CallMetrics
    from server.puts import Durability
    from server.reads import Reads
    from server.workers import Pools
    from store.groups import Answered
    from store.message_store import MessageStore
    from store.metadata import SharedGroup


class SharedGroupService(shared_groups_pb2_grpc.SharedGroupServiceServicer):
    """Owned by the event loop's thread."""

    def __init__(
        self,
        store: MessageStore,
        reads: Reads,
        durability: Durability,
        pools: Pools,
        metrics: CallMetrics,
    ) -> None:
        self._store = store
        self._groups = store.groups
        self._reads = reads
        self._durability = durability
        self._pools = pools
        self._metrics = metrics
        self._changing = asyncio.Lock()

    # --- messages --------------------------------------------------------------------------

    async def Receive(self, request: pb.ReceiveRequest, context: Context) -> bytes:
        remaining_s = context.time_remaining() if request.wait_ms else None
        return await self._reads.receive(request, remaining_s)

    async def Acknowledge(
        self, request: pb.AcknowledgeRequest, context: Context
    ) -> pb.AcknowledgeResponse:
        handles = _handles_of(request)
        answered = await self._settle(
            lambda: self._groups.acknowledge(request.group, handles, wait=False)
        )
        outcomes = outcomes_out(answered.outcomes)
        self._count("messages_acknowledged", outcomes)
        return pb.AcknowledgeResponse(outcomes=outcomes)

    async def ChangeInvisibleTime(
        self, request: pb.ChangeInvisibleTimeRequest, context: Context
    ) -> pb.ChangeInvisibleTimeResponse:
        handles = _handles_of(request)
        until_ms = self._store.lease_time_ms() + request.invisible_ms  # or a little later
        answered = await self._settle(
            lambda: self._groups.change_invisible(
                request.group, handles, request.invisible_ms, wait=False
            )
        )
        outcomes = outcomes_out(answered.outcomes)
        self._count("messages_held_on", outcomes)
        return pb.ChangeInvisibleTimeResponse(outcomes=outcomes, until_ms=until_ms)

    async def GiveBack(self, request: pb.GiveBackRequest, context: Context) -> pb.GiveBackResponse:
        handles = _handles_of(request)
        delay_ms = request.delay_ms if request.HasField("delay_ms") else None
        answered = await self._settle(
            lambda: self._groups.give_back(request.group, handles, delay_ms, wait=False)
        )
        outcomes = outcomes_out(answered.outcomes)
        self._count("messages_given_back", outcomes)
        return pb.GiveBackResponse(outcomes=outcomes)

    async def _settle(self, settle: Callable[[], Answered]) -> Answered:
        """What became of the handles, once it is as durable as a put."""
        answered = await self._pools.settling.run(settle)
        await self._durability.wait(answered.end_offset)
        return answered

    def _count(self, name: str, outcomes: Sequence[pb.HandleOutcome]) -> None:
        self._metrics.count(name, outcomes.count(pb.HANDLE_OUTCOME_DONE))

    # --- groups ----------------------------------------------------------------------------

    async def CreateGroup(
        self, request: pb.CreateGroupRequest, context: Context
    ) -> pb.CreateGroupResponse:
        wanted = settings_in(request.settings, None)
        made = await self._change(lambda: self._groups.create(request.group, wanted))
        return pb.CreateGroupResponse(settings=settings_out(made))

    async def UpdateGroup(
        self, request: pb.UpdateGroupRequest, context: Context
    ) -> pb.UpdateGroupResponse:
        def update() -> SharedGroup:
            found = self._groups.describe(request.group)
            if found is None:
                raise GroupKindError(request.group, is_shared=False)
            return self._groups.update(request.group, settings_in(request.settings, found))

        async with self._changing:  # what another call changes is not undone
            changed = await self._change(update)
        return pb.UpdateGroupResponse(settings=settings_out(changed))

    async def _change(self, change: Callable[[], SharedGroup]) -> SharedGroup:
        try:
            return await self._pools.changes.run(change)
        except InvalidArgumentError as error:
            raise of_settings(error) from None

    async def DescribeGroup(
        self, request: pb.DescribeGroupRequest, context: Context
    ) -> pb.DescribeGroupResponse:
        page_size_of(request.page_size)
        settings = await self._pools.lookups.run(self._groups.describe, request.group)
        if settings is None:
            return pb.DescribeGroupResponse(shared=False)
        return pb.DescribeGroupResponse(shared=True, settings=settings_out(settings))

    async def ResetGroup(
        self, request: pb.ResetGroupRequest, context: Context
    ) -> pb.ResetGroupResponse:
        raise NotServedError("ResetGroup")

    async def Redrive(self, request: pb.RedriveRequest, context: Context) -> pb.RedriveResponse:
        raise NotServedError("Redrive")

    async def ListDeadLetters(
        self, request: pb.ListDeadLettersRequest, context: Context
    ) -> pb.ListDeadLettersResponse:
        raise NotServedError("ListDeadLetters")

    async def DeleteDeadLetters(
        self, request: pb.DeleteDeadLettersRequest, context: Context
    ) -> pb.DeleteDeadLettersResponse:
        raise NotServedError("DeleteDeadLetters")


def _handles_of(
    request: pb.AcknowledgeRequest | pb.ChangeInvisibleTimeRequest | pb.GiveBackRequest,
) -> Sequence[str]:
    not_more("handles", request.handles, MOST_HANDLES, "handles")
    return list(request.handles)
