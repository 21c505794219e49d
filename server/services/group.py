"""Offsets of reader groups: commit, fetch, reset, list, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import kvcq_pb2_grpc
from server.access import current_caller
from server.services.paging import position_of, token_of
from server.wire import MAX_QUEUES, not_more, not_negative, page_size_of, queues_of
from store.consume_queue import Boundary
from store.errors import (
    InvalidArgumentError,
    OffsetOutOfRangeError,
    UnknownQueueError,
    UnknownTopicError,
)
from store.light_queue import is_light

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.access import Caller
    from server.edge import Context
    from server.workers import Pools
    from store.consume_queue import Bounds
    from store.message_store import MessageStore

Queue = tuple[str, int]


class GroupService(kvcq_pb2_grpc.GroupServiceServicer):
    """A commit is durable when it is answered. Everything runs in workers."""

    def __init__(self, store: MessageStore, pools: Pools) -> None:
        self._store = store
        self._pools = pools

    async def CommitOffsets(
        self, request: pb.CommitOffsetsRequest, context: Context
    ) -> pb.CommitOffsetsResponse:
        not_more("offsets", request.offsets, MAX_QUEUES, "queues")

        def commit() -> None:
            offsets = [
                (
                    one.topic,
                    not_negative(f"offsets[{index}].queue_id", one.queue_id),
                    not_negative(f"offsets[{index}].offset", one.offset),
                )
                for index, one in enumerate(request.offsets)
            ]
            given_at = [
                one.given_at if one.HasField("given_at") else None for one in request.offsets
            ]
            self._store.commit_offsets(
                request.group, offsets, given_at, allow_back=request.allow_back
            )

        await self._pools.commits.run(commit)
        return pb.CommitOffsetsResponse()

    async def FetchOffsets(self, request: pb.FetchOffsetsRequest, context: Context) -> bytes:
        queues = queues_of(request.queues)
        return await self._group_offsets(request.group, queues)

    async def ResetOffsets(self, request: pb.ResetOffsetsRequest, context: Context) -> bytes:
        if request.WhichOneof("to") is None:
            raise InvalidArgumentError("to", "must be one of earliest, latest, time_ms, offset")
        not_more("queue_ids", request.queue_ids, MAX_QUEUES, "queues")
        queue_ids = list(request.queue_ids)
        if not queue_ids:
            queue_ids = await self._pools.lookups.run(_all_queues, self._store, request.topic)
        queues = [(request.topic, queue_id) for queue_id in queue_ids]

        def targets(some: Sequence[Queue]) -> list[int]:
            bounds = self._store.bounds(some)
            return [
                _target(self._store, queue, one, request)
                for queue, one in zip(some, bounds, strict=True)
            ]

        found = await self._pools.scans.run_slices(targets, queues)

        def commit() -> None:
            self._store.commit_offsets(
                request.group,
                [
                    (topic, queue_id, to)
                    for (topic, queue_id), to in zip(queues, found, strict=True)
                ],
                allow_back=True,
            )

        await self._pools.commits.run(commit)
        return await self._group_offsets(request.group, queues)

    async def ListGroupOffsets(
        self, request: pb.ListGroupOffsetsRequest, context: Context
    ) -> bytes:
        size = page_size_of(request.page_size)
        after = position_of(request.page_token)
        caller = current_caller()

        def page() -> pb.ListGroupOffsetsResponse:
            self._store.committed_offsets(request.group, ())  # refuses a shared group
            rows = self._rows_for(caller, request.group, after, size + 1)
            more, rows = len(rows) > size, rows[:size]
            queues = [(topic, queue_id) for topic, queue_id, _ in rows]
            bounds = _known_bounds(self._store, queues)
            return pb.ListGroupOffsetsResponse(
                offsets=[
                    _offset_out(queue, offset, one)
                    for queue, (_, _, offset), one in zip(queues, rows, bounds, strict=True)
                    if one is not None
                ],
                next_page_token=token_of(queues[-1]) if more else "",
            )

        return await self._pools.scans.encoded(page)

    def _rows_for(
        self, caller: Caller, group: str, after: Queue | None, limit: int
    ) -> list[tuple[str, int, int]]:
        """Queues and offsets of topics that the caller may see. Members of a group need not have
        the same rights, and neither bounds nor a page token reveal a topic to others."""
        found: list[tuple[str, int, int]] = []
        while len(found) < limit:
            rows = self._store.list_committed(group, after, limit)
            found += [row for row in rows if caller.may_look_at(row[0])]
            if len(rows) < limit:
                break
            after = rows[-1][:2]
        return found[:limit]

    async def ListGroups(self, request: pb.ListGroupsRequest, context: Context) -> bytes:
        size = page_size_of(request.page_size)

        def page() -> pb.ListGroupsResponse:
            groups = self._store.list_groups(request.page_token or None, size + 1)
            more, groups = len(groups) > size, groups[:size]
            return pb.ListGroupsResponse(groups=groups, next_page_token=groups[-1] if more else "")

        return await self._pools.scans.encoded(page)

    async def DeleteGroup(
        self, request: pb.DeleteGroupRequest, context: Context
    ) -> pb.DeleteGroupResponse:
        await self._pools.changes.run(self._store.delete_group, request.group)
        return pb.DeleteGroupResponse()

    async def _group_offsets(self, group: str, queues: Sequence[Queue]) -> bytes:
        """An encoded FetchOffsetsResponse; ResetOffsetsResponse has the same single field."""

        def offsets(some: Sequence[Queue]) -> pb.FetchOffsetsResponse:
            def find() -> list[pb.GroupOffset]:
                bounds = self._store.bounds(some)  # first: it refuses names that no key can hold
                committed = self._store.committed_offsets(group, some)
                return [
                    _offset_out(queue, offset, one)
                    for queue, offset, one in zip(some, committed, bounds, strict=True)
                ]

            found, given_at = self._store.with_given_at([topic for topic, _ in some], find)
            for one in found:
                one.given_at = given_at
            return pb.FetchOffsetsResponse(offsets=found)

        if not queues:
            offsets(queues)  # even without queues, to check the group's name
        return await self._pools.scans.encoded_slices(offsets, queues)


def _known_bounds(store: MessageStore, queues: Sequence[Queue]) -> list[Bounds | None]:
    """Bounds of each queue; None for one that was just deleted, or lost with the log's end."""
    try:
        return [*store.bounds(queues)]
    except (UnknownTopicError, UnknownQueueError):
        pass
    found: list[Bounds | None] = []
    for queue in queues:
        try:
            found += store.bounds([queue])
        except (UnknownTopicError, UnknownQueueError):
            found.append(None)
    return found


def _offset_out(queue: Queue, offset: int | None, bounds: Bounds) -> pb.GroupOffset:
    # Messages after the committed offset may have expired; they are gone and do not count as lag.
    begin = bounds.min_offset if offset is None else max(offset, bounds.min_offset)
    return pb.GroupOffset(
        topic=queue[0],
        queue_id=queue[1],
        offset=offset,
        min_offset=bounds.min_offset,
        max_offset=bounds.max_offset,
        lag=max(0, bounds.max_offset - begin),
    )


def _all_queues(store: MessageStore, topic: str) -> list[int]:
    if is_light(topic):
        return [0]
    return list(range(store.describe_topic(topic).queue_count))


def _target(
    store: MessageStore, queue: Queue, bounds: Bounds, request: pb.ResetOffsetsRequest
) -> int:
    match request.WhichOneof("to"):
        case "earliest":
            return bounds.min_offset
        case "latest":
            return bounds.max_offset
        case "time_ms":
            return store.search_time(*queue, request.time_ms, Boundary.LOWER)
        case _:
            if not bounds.min_offset <= request.offset <= bounds.max_offset:
                raise OffsetOutOfRangeError(*queue, request.offset, *bounds)
            return request.offset
