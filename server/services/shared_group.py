"""Shared groups: receive, acknowledge, renew, give back; settings.

If nothing has to be waited for, a receive or an acknowledgement is a turn of the store in the loop,
otherwise in a thread. Acknowledgements wait in the loop until they are durable, like puts.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import shared_groups_pb2 as pb
from kvcq_client.pb.v1 import shared_groups_pb2_grpc
from server.access import current_caller
from server.errors import AccessError
from server.services.paging import number_of, position_of, token_of
from server.wire import (
    MAX_QUEUES,
    bounded,
    dead_letter_out,
    host_of_peer,
    host_text,
    not_more,
    not_negative,
    of_settings,
    outcomes_out,
    page_size_of,
    queue_out,
    settings_in,
    settings_out,
    where_in,
)
from server.workers import QUEUES_A_TURN
from store.errors import GroupKindError, InvalidArgumentError
from store.groups import MOST_HANDLES, MOST_LETTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from server.edge import Context
    from server.metrics import CallMetrics
    from server.puts import Durability, Settlements
    from server.reads import Reads, Shown
    from server.workers import Pools
    from store.groups import SharedQueue
    from store.message_store import MessageStore
    from store.metadata import SharedGroup

#: Dead letters of a page.
DEFAULT_LETTERS = 100


class SharedGroupService(shared_groups_pb2_grpc.SharedGroupServiceServicer):
    """The calls on shared groups. Owned by the event loop's thread."""

    def __init__(
        self,
        store: MessageStore,
        reads: Reads,
        settlements: Settlements,
        durability: Durability,
        pools: Pools,
        metrics: CallMetrics,
    ) -> None:
        self._store = store
        self._groups = store.groups
        self._reads = reads
        self._settlements = settlements
        self._durability = durability
        self._pools = pools
        self._metrics = metrics
        self._changing = asyncio.Lock()

    # --- messages --------------------------------------------------------------------------

    async def Receive(self, request: pb.ReceiveRequest, context: Context) -> bytes:
        remaining_s = context.time_remaining() if request.wait_ms else None
        return await self._reads.receive(request, remaining_s)

    def Receive_now(self, request: pb.ReceiveRequest, context: Context) -> bytes | None:
        return self._reads.receive_now(request)

    async def Acknowledge(
        self, request: pb.AcknowledgeRequest, context: Context
    ) -> pb.AcknowledgeResponse:
        handles = _handles_of(request)
        outcomes = await self._settlements.acknowledge(request.group, handles)
        return pb.AcknowledgeResponse(outcomes=outcomes_out(outcomes))

    def Acknowledge_now(
        self, request: pb.AcknowledgeRequest, context: Context
    ) -> pb.AcknowledgeResponse | None:
        outcomes = self._settlements.acknowledge_now(request.group, _handles_of(request))
        return None if outcomes is None else pb.AcknowledgeResponse(outcomes=outcomes_out(outcomes))

    async def ChangeInvisibleTime(
        self, request: pb.ChangeInvisibleTimeRequest, context: Context
    ) -> pb.ChangeInvisibleTimeResponse:
        handles = _handles_of(request)
        until_ms = self._store.lease_time_ms() + request.invisible_ms  # or a little later
        outcomes = await self._settlements.hold_on(request.group, handles, request.invisible_ms)
        return pb.ChangeInvisibleTimeResponse(outcomes=outcomes_out(outcomes), until_ms=until_ms)

    async def GiveBack(self, request: pb.GiveBackRequest, context: Context) -> pb.GiveBackResponse:
        handles = _handles_of(request)
        delay_ms = request.delay_ms if request.HasField("delay_ms") else None
        outcomes = await self._settlements.give_back(
            request.group, handles, delay_ms, not_begun=request.not_begun
        )
        return pb.GiveBackResponse(outcomes=outcomes_out(outcomes))

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

        async with self._changing:  # one at a time, so that concurrent changes are not overwritten
            changed = await self._change(update)
        return pb.UpdateGroupResponse(settings=settings_out(changed))

    async def _change(self, change: Callable[[], SharedGroup]) -> SharedGroup:
        try:
            return await self._pools.changes.run(change)
        except InvalidArgumentError as error:
            raise of_settings(error) from None

    async def DescribeGroup(self, request: pb.DescribeGroupRequest, context: Context) -> bytes:
        size = page_size_of(request.page_size)
        after = position_of(request.page_token)
        group, caller = request.group, current_caller()
        settings = await self._pools.lookups.run(self._groups.describe, group)
        if settings is None:
            return pb.DescribeGroupResponse(shared=False).SerializeToString()
        queues: list[SharedQueue] = []
        while len(queues) <= size:  # one more than asked for tells whether there is another page
            some = await self._pools.scans.run(
                self._groups.describe_queues, group, min(QUEUES_A_TURN, size + 1), after
            )
            if not some:
                break
            after = some[-1][:2]
            queues += [each for each in some if caller.may_look_at(each.topic)]
        more, queues = len(queues) > size, queues[:size]
        dead_letters = await self._pools.lookups.run(self._groups.dead_letters, group)
        held = await self._pools.scans.run(self._groups.held, group, [one[:2] for one in queues])
        members = self._reads.members(group, held)

        def answer() -> pb.DescribeGroupResponse:
            return pb.DescribeGroupResponse(
                shared=True,
                settings=settings_out(settings),
                queues=map(queue_out, queues),
                next_page_token=token_of(queues[-1][:2]) if more else "",
                dead_letters=dead_letters,
                members=map(_member_out, members),
            )

        return await self._pools.scans.encoded(answer)

    async def ResetGroup(self, request: pb.ResetGroupRequest, context: Context) -> bytes:
        where = where_in(request, request.WhichOneof("to"))
        if where is None:
            raise InvalidArgumentError("to", "must be one of earliest, latest, time_ms, offset")
        not_more("queue_ids", request.queue_ids, MAX_QUEUES, "queues")
        queue_ids = list(request.queue_ids) or None

        def reset() -> pb.ResetGroupResponse:
            done = self._groups.reset(request.group, request.topic, queue_ids, where)
            return pb.ResetGroupResponse(
                queues=map(queue_out, done.queues), ended_in_flight=done.ended_in_flight
            )

        return await self._pools.changes.encoded(reset)

    # --- dead letters ----------------------------------------------------------------------

    async def ListDeadLetters(self, request: pb.ListDeadLettersRequest, context: Context) -> bytes:
        size = bounded("page_size", request.page_size, DEFAULT_LETTERS, MOST_LETTERS)
        after, group = number_of(request.page_token), request.group
        if not request.page_token and request.HasField("after"):
            after = not_negative("after", request.after)

        def page() -> pb.ListDeadLettersResponse:
            letters = self._groups.list_dead_letters(group, after, size)
            is_last = len(letters) < size
            is_last = is_last or not self._groups.list_dead_letters(group, letters[-1].offset, 1)
            return pb.ListDeadLettersResponse(
                letters=map(dead_letter_out, letters),
                next_page_token="" if is_last else str(letters[-1].offset),
            )

        return await self._pools.lookups.encoded(page)

    async def Redrive(self, request: pb.RedriveRequest, context: Context) -> pb.RedriveResponse:
        most = bounded("max_messages", request.max_messages, MOST_LETTERS, MOST_LETTERS)
        after = not_negative("after", request.after) if request.HasField("after") else -1
        offsets, caller = list(request.offsets), current_caller()

        def may(topic: str) -> bool:
            try:
                caller.publishes([topic])
            except AccessError:
                return False
            return True

        done = await self._pools.changes.run(
            lambda: self._groups.redrive(
                request.group, offsets, most, after=after, may=may, wait=False
            )
        )
        if done.refused and not done.redriven + done.left:
            caller.publishes([done.refused])
        await self._durability.wait(done.end_offset)
        self._metrics.count("messages_redriven", done.redriven)
        return pb.RedriveResponse(
            redriven=done.redriven,
            left=done.left,
            complete=done.complete,
            last=done.last if done.last >= 0 else None,
        )

    async def DeleteDeadLetters(
        self, request: pb.DeleteDeadLettersRequest, context: Context
    ) -> pb.DeleteDeadLettersResponse:
        offsets = list(request.offsets)
        deleted, end_offset = await self._pools.changes.run(
            lambda: self._groups.delete_dead_letters(request.group, offsets, wait=False)
        )
        await self._durability.wait(end_offset)
        return pb.DeleteDeadLettersResponse(deleted=deleted)


def _member_out(member: Shown) -> pb.GroupMember:
    return pb.GroupMember(
        user=member.user,
        address=host_text(host_of_peer(member.peer)),
        since_ms=member.since_ms,
        last_ms=member.last_ms,
        waiting=member.waiting,
        in_flight=member.in_flight,
    )


def _handles_of(
    request: pb.AcknowledgeRequest | pb.ChangeInvisibleTimeRequest | pb.GiveBackRequest,
) -> Sequence[str]:
    not_more("handles", request.handles, MOST_HANDLES, "handles")
    return list(request.handles)
