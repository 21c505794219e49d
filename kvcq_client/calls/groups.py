"""Calls on the offsets that reader groups commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.arguments import (
    INT32_MAX,
    checked,
    positions_of,
    whole,
)
from kvcq_client.calls.call_group import QUEUES_A_CALL, CallGroup, queues_out, set_where
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.transport import in_parts, paged
from kvcq_client.values import (
    GroupOffset,
    Queue,
    Start,
    given_at,
)
from kvcq_client.wire import position_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@checked()
class GroupCalls(CallGroup):
    """Commits, reads and resets the offsets of reader groups."""

    async def commit_offsets(
        self,
        reader_group: str,
        offsets: Mapping[Queue, int],
        *,
        allow_back: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Commit the next offset to read of each queue, durably; 10,000 queues at a time or none.

        Raises OffsetBehindError when the reader group has committed a later offset in one of them,
        unless `allow_back`; OffsetOutOfRangeError above a queue's end.
        """
        items = list(positions_of("offsets", offsets).items())
        for part in in_parts(items, QUEUES_A_CALL):
            await self._call(
                self._groups.CommitOffsets,
                pb.CommitOffsetsRequest(
                    group=reader_group,
                    offsets=[
                        pb.QueuePosition(
                            topic=queue[0],
                            queue_id=queue[1],
                            offset=offset,
                            given_at=given_at(offset),
                        )
                        for queue, offset in part
                    ],
                    allow_back=allow_back,
                ),
                timeout_s,
            )

    async def group_offsets(
        self,
        reader_group: str,
        queues: Iterable[Queue] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> list[GroupOffset]:
        """The committed offsets of a reader group, with the lag: of these queues, or of all."""
        found: list[GroupOffset] = []
        if queues is not None:
            for part in queues_out(queues):
                fetched = await self._call(
                    self._groups.FetchOffsets,
                    pb.FetchOffsetsRequest(group=reader_group, queues=part),
                    timeout_s,
                )
                found += map(_group_offset, fetched.offsets)
            return found
        request = pb.ListGroupOffsetsRequest(group=reader_group)
        async for page in paged(self._call, self._groups.ListGroupOffsets, request, timeout_s):
            found += map(_group_offset, page.offsets)
        return found

    async def reset_offsets(
        self,
        reader_group: str,
        topic: str,
        to: Start | str | int,
        *,
        queue_ids: Sequence[int] = (),
        time_ms: int | None = None,
        timeout_s: float | None = None,
    ) -> list[GroupOffset]:
        """Move a reader group's offsets in a topic: to an end, an offset, or a time.

        All queues when `queue_ids` is empty. `time_ms` overrules `to`.
        """
        queue_ids = [whole("queue_ids", queue_id, INT32_MAX) for queue_id in queue_ids]
        request = pb.ResetOffsetsRequest(group=reader_group, topic=topic, queue_ids=queue_ids)
        set_where(request, to, time_ms)
        answer = await self._call(self._groups.ResetOffsets, request, timeout_s)
        return list(map(_group_offset, answer.offsets))

    async def groups(self, *, timeout_s: float | None = None) -> list[str]:
        """Names of all reader groups that committed something."""
        pages = paged(self._call, self._groups.ListGroups, pb.ListGroupsRequest(), timeout_s)
        return [group async for page in pages for group in page.groups]

    async def delete_group(self, group: str, *, timeout_s: float | None = None) -> None:
        """Delete the offsets that the reader group committed. Repeatable."""
        await self._call(self._groups.DeleteGroup, pb.DeleteGroupRequest(group=group), timeout_s)


def _group_offset(one: pb.GroupOffset) -> GroupOffset:
    return GroupOffset(
        one.topic,
        one.queue_id,
        position_in(one, one.offset) if one.HasField("offset") else None,
        position_in(one, one.min_offset),
        position_in(one, one.max_offset),
        one.lag,
    )
