"""The calls that are one request and one answer, typed. Every one raises KvcqError."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from kvcq_client.activity import Activity
from kvcq_client.arguments import (
    INT32_MAX,
    check_known,
    checked,
    number,
    positions_of,
    queue_of,
    start_of,
    text,
    whole,
)
from kvcq_client.errors import NotFoundError
from kvcq_client.format import (
    Checker,
    StoredMessage,
    divided,
    given_as,
    outgoing_of,
    placed,
    placed_all,
    split_records,
    write_to,
)
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.results import Pulled, QueryPage, StoredBatch
from kvcq_client.settings import ReloadedSettings, ServerSetting
from kvcq_client.transport import paged
from kvcq_client.values import (
    Boundary,
    Bounds,
    GroupOffset,
    Message,
    Placed,
    Queue,
    QueueState,
    Retention,
    Start,
    Topic,
    given_at,
    position,
)
from kvcq_client.wire import from_wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence
    from typing import Never

    from kvcq_client.transport import Connection

#: Queues of one request; the server takes no more.
_QUEUES_A_CALL = 10_000
_TOPICS_A_CALL = 10_000
_BOUNDARIES = {Boundary.LOWER: pb.TIME_BOUNDARY_LOWER, Boundary.UPPER: pb.TIME_BOUNDARY_UPPER}

_checker = Checker()


@checked(but=("put",))  # which looks at all of it itself
class Calls:
    """What a client can ask for, in the event loop of its connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._call = connection.call
        self._messages = connection.messages
        self._topics = connection.topics
        self._groups = connection.groups
        self._admin = connection.admin

    # --- messages --------------------------------------------------------------------------

    async def put(
        self,
        /,
        topic: str | Message,
        body: bytes | None = None,
        *,
        ordering_key: str = "",
        queue_id: int | None = None,
        tag: str = "",
        keys: Sequence[str] = (),
        light_queues: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        born_time_ms: int | None = None,
        timeout_s: float | None = None,
        **unknown: Never,
    ) -> Placed:
        """Store one message, now: `put("orders", b"hello")`. Fields: see Message, which may also
        stand in place of all of them. A producer is the way for many messages.

        It is sent once. After UnavailableError or DeadlineError without a reason, or when the call
        is cancelled (`asyncio.wait_for`, a task that is cancelled, Ctrl-C), the message may be
        stored all the same; putting it again may store it twice. A producer, or `put_numbered`,
        stores it once however often it is sent.

        Raises TypeError, ValueError, PermissionDeniedError, NotFoundError, InvalidArgumentError,
        ResourceExhaustedError when the disk is full, and what every call raises.
        """
        check_known(unknown)
        if timeout_s is not None:
            number("timeout_s", timeout_s)
        texts = (tag, keys, light_queues, properties)
        given = given_as(topic, body, queue_id, *texts, flag, born_time_ms, ordering_key)
        request = pb.PutRequest()
        write_to(request.message, _checker.check(given)[0])
        answer = await self._call(self._messages.Put, request, timeout_s, may_repeat=False)
        return answer if isinstance(answer, Placed) else placed(answer)

    async def put_fan_out(
        self, message: Message, *, timeout_s: float | None = None
    ) -> list[Placed]:
        """Store a message in more light queues than one record has room for, now.

        It is stored as several records of one batch, all or none: each light queue has it once, and
        the topic's own queue once for each record (in one queue, if the message names it or has an
        ordering key). Returns their places, each with the offsets in its light queues: together
        those of `message.light_queues`, in that order, without repeated names. One record has room
        for 32,767 bytes of properties, of which a light queue takes its name and 12 bytes. Not
        repeated once it may be stored, see `put`.
        """
        light_queues = _checker.check(outgoing_of(message))[0][5]
        parts = list(divided(replace(message, light_queues=tuple(light_queues))))
        request = pb.PutBatchRequest()
        for part in parts:
            write_to(request.messages.add(), _checker.check(outgoing_of(part))[0])
        answer = await self._call(self._messages.PutBatch, request, timeout_s, may_repeat=False)
        return placed_all(answer, [len(part.light_queues) for part in parts])

    async def put_numbered(
        self,
        messages: Sequence[Message],
        *,
        producer_id: str,
        sequence: int,
        timeout_s: float | None = None,
    ) -> bool:
        """Store all of the messages, or none; the same batch again, whenever, changes nothing.

        For callers that cut batches themselves, the same way each time, such as a job that is
        run again.
        `sequence` numbers the first message; the next batch of the id begins behind the last one.
        Returns whether the batch was there before. Raises NotPossibleError out of sequence,
        NumberReusedError when other messages have that number, NumberPassedError when its batch
        has expired; nothing was stored then.
        """
        request = pb.PutBatchRequest(
            producer=pb.ProducerSequence(producer_id=producer_id, sequence=sequence)
        )
        for message in messages:
            checked_one, _ = _checker.check(outgoing_of(message, "messages"))
            write_to(request.messages.add(), checked_one)
        answer = await self._call(self._messages.PutBatch, request, timeout_s)
        repeated: bool = answer.repeated_batch
        return repeated

    async def pull(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int = 1000,
        max_bytes: int | None = None,
        tag_filter: str = "",
        wait_s: float = 0.0,
        timeout_s: float | None = None,
    ) -> Pulled:
        """Messages of one queue from `offset` on; `wait_s`: how long to wait when there are none.

        Raises OffsetOutOfRangeError, NotFoundError, DataLossError; RecreatedError when the offset
        is that of an answer, and the topic was deleted and made again since.
        """
        limit_s = self._connection.timeout_s if timeout_s is None else timeout_s
        answer = await self._call(
            self._messages.Pull,
            pb.PullRequest(
                topic=topic,
                queue_id=queue_id,
                offset=offset,
                max_messages=max_messages,
                max_bytes=max_bytes,
                tag_filter=tag_filter,
                wait_ms=round(wait_s * 1000),
                form=pb.RECORD_FORM_WHOLE,
                given_at=given_at(offset),
            ),
            limit_s + wait_s,
        )
        at = _given_at(answer)
        return Pulled(
            split_records(answer.records, answer.queue_offsets, queue=Queue(topic, queue_id)),
            position(answer.next_offset, at),
            position(answer.min_offset, at),
            position(answer.max_offset, at),
        )

    async def query(
        self,
        topic: str,
        key: str,
        *,
        begin_time_ms: int | None = None,
        end_time_ms: int | None = None,
        max_messages: int = 32,
        cursor: bytes = b"",
        timeout_s: float | None = None,
    ) -> QueryPage:
        """Messages of the topic with the key, oldest first; times are inclusive.

        Raises DataLossError when the next message is damaged; its `next_cursor` goes on behind it.
        """
        answer = await self._call(
            self._messages.Query,
            pb.QueryRequest(
                topic=topic,
                key=key,
                begin_time_ms=begin_time_ms,
                end_time_ms=end_time_ms,
                max_messages=max_messages,
                cursor=cursor,
                form=pb.RECORD_FORM_WHOLE,
            ),
            timeout_s,
        )
        return QueryPage(split_records(answer.records), answer.cursor, answer.complete)

    async def get(self, message_id: str, *, timeout_s: float | None = None) -> StoredMessage:
        """One message by the id that a put returned. Raises NotFoundError."""
        # The service answers with the decoded form; the record itself is in the queue.
        answer = await self._call(
            self._messages.Get, pb.GetRequest(message_id=message_id), timeout_s
        )
        return await self._stored(answer.message, timeout_s)

    async def stored_batch(
        self, producer_id: str, sequence: int, *, timeout_s: float | None = None
    ) -> StoredBatch | None:
        """What `put_numbered` stored under that number; None when no batch begins with it."""
        try:
            answer = await self._call(
                self._messages.GetBatch,
                pb.GetBatchRequest(
                    producer=pb.ProducerSequence(producer_id=producer_id, sequence=sequence)
                ),
                timeout_s,
            )
        except NotFoundError:
            return None
        return StoredBatch(split_records(answer.records), answer.message_count)

    async def _stored(self, message: pb.StoredMessage, timeout_s: float | None) -> StoredMessage:
        pulled = await self.pull(
            message.topic,
            message.queue_id,
            message.queue_offset,
            max_messages=1,
            timeout_s=timeout_s,
        )
        found = pulled.messages
        if not found or found[0].physical_offset != message.physical_offset:
            raise NotFoundError(f"{message.message_id} was deleted meanwhile")
        return found[0]

    async def offsets(
        self, queues: Iterable[Queue], *, timeout_s: float | None = None
    ) -> dict[Queue, Bounds]:
        """Min and max offset of each queue. Raises NotFoundError."""
        found: dict[Queue, Bounds] = {}
        for part in _parts(queues):
            answer = await self._call(
                self._messages.GetOffsets, pb.GetOffsetsRequest(queues=part), timeout_s
            )
            for one in answer.queues:
                queue, at = Queue(one.topic, one.queue_id), _given_at(one)
                found[queue] = Bounds(position(one.min_offset, at), position(one.max_offset, at))
        return found

    async def search_time(
        self,
        topic: str,
        queue_id: int,
        time_ms: int,
        boundary: Boundary = Boundary.LOWER,
        *,
        timeout_s: float | None = None,
    ) -> int:
        """The offset of the message that was stored at that time, or next to it."""
        answer = await self._call(
            self._messages.SearchTime,
            pb.SearchTimeRequest(
                topic=topic, queue_id=queue_id, time_ms=time_ms, boundary=_BOUNDARIES[boundary]
            ),
            timeout_s,
        )
        offset: int = answer.offset
        return offset

    async def ping(self, *, timeout_s: float | None = None) -> None:
        """A server answers there, be its store open or not. It asks nobody who they are."""
        await self._call(self._connection.health, b"", timeout_s)

    # --- topics ----------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        queue_count: int | None = None,
        *,
        retention: Retention | None = None,
        timeout_s: float | None = None,
    ) -> Topic:
        """The topic exists, durably; without a count, with the server's default.

        Without a `retention` it keeps all that is in the log. Repeatable; raises AlreadyExistsError
        when it has another count, or another retention than the one given.
        """
        made = await self.create_topics(
            {name: queue_count}, retention=retention, timeout_s=timeout_s
        )
        return made[0]

    async def create_topics(
        self,
        topics: Mapping[str, int | None] | Mapping[str, int] | Iterable[str],
        *,
        retention: Retention | None = None,
        timeout_s: float | None = None,
    ) -> list[Topic]:
        """Names, or names and queue counts. All of 10,000 at a time, or none of them."""
        kept = None if retention is None else _retention_out(retention)
        given = topics.items() if isinstance(topics, Mapping) else ((name, None) for name in topics)
        wanted = {text("topics", name): count for name, count in given}
        items = [
            (name, None if count is None else whole("topics", count, INT32_MAX))
            for name, count in wanted.items()
        ]
        made: list[Topic] = []
        for begin in range(0, len(items), _TOPICS_A_CALL):
            answer = await self._call(
                self._topics.CreateTopics,
                pb.CreateTopicsRequest(
                    topics=[
                        pb.CreateTopicRequest(name=name, queue_count=count, retention=kept)
                        for name, count in items[begin : begin + _TOPICS_A_CALL]
                    ]
                ),
                timeout_s,
            )
            made += (from_wire(Topic, topic) for topic in answer.topics)
        return made

    async def update_topic(
        self,
        name: str,
        *,
        retention_time_ms: int | None = None,
        retention_bytes: int | None = None,
        retention_messages: int | None = None,
        retention_latest: bool | None = None,
        timeout_s: float | None = None,
    ) -> Topic:
        """What the topic keeps from now on: see Retention. What is None stays as it is.

        Raises NotFoundError, InvalidArgumentError when nothing is given.
        """
        answer = await self._call(
            self._topics.UpdateTopic,
            pb.UpdateTopicRequest(
                name=name,
                retention_time_ms=retention_time_ms,
                retention_bytes=retention_bytes,
                retention_messages=retention_messages,
                retention_latest=retention_latest,
            ),
            timeout_s,
        )
        return from_wire(Topic, answer.topic)

    async def delete_topic(self, name: str, *, timeout_s: float | None = None) -> None:
        """The topic, or light queue, is gone with all its messages. Raises NotFoundError."""
        await self._call(
            self._topics.DeleteTopic,
            pb.DeleteTopicRequest(name=name),
            timeout_s,
            # Repeated after an answer that was lost, it would say that there is none.
            may_repeat=False,
        )

    async def topic_queues(
        self, name: str, *, timeout_s: float | None = None
    ) -> tuple[Topic, list[QueueState]]:
        """The topic, and all of its queues, by id. Raises NotFoundError."""
        request = pb.DescribeTopicRequest(name=name)
        pages = paged(self._call, self._topics.DescribeTopic, request, timeout_s)
        found = [page async for page in pages]
        queues = [from_wire(QueueState, one) for page in found for one in page.queues]
        return from_wire(Topic, found[-1].topic), queues

    async def describe_topic(self, name: str, *, timeout_s: float | None = None) -> Topic:
        """Raises NotFoundError."""
        answer = await self._call(
            self._topics.DescribeTopic, pb.DescribeTopicRequest(name=name, page_size=1), timeout_s
        )
        return from_wire(Topic, answer.topic)

    async def topics(
        self, prefix: str = "", *, light_queues: bool = False, timeout_s: float | None = None
    ) -> AsyncIterator[Topic]:
        """All topics, or light queues, whose names begin so; `timeout_s` is for each page."""
        request = pb.ListTopicsRequest(prefix=prefix, light_queues=light_queues)
        async for page in paged(self._call, self._topics.ListTopics, request, timeout_s):
            for topic in page.topics:
                yield from_wire(Topic, topic)

    # --- groups ----------------------------------------------------------------------------

    async def commit_offsets(
        self,
        reader_group: str,
        offsets: Mapping[Queue, int],
        *,
        allow_back: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Store the next offset to read of each queue, durably. All of 10,000 at a time, or none.

        Raises OffsetBehindError when the reader group has committed a later offset in one of them,
        unless `allow_back`; OffsetOutOfRangeError above a queue's end.
        """
        items = list(positions_of("offsets", offsets).items())
        for begin in range(0, len(items), _QUEUES_A_CALL):
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
                        for queue, offset in items[begin : begin + _QUEUES_A_CALL]
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
        """What the reader group committed, with the lag: in these queues, or in all."""
        found: list[GroupOffset] = []
        if queues is not None:
            for part in _parts(queues):
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
        """Move the reader group's offsets in a topic: to an end, to an offset, or to a time.

        All queues when `queue_ids` is empty. `time_ms` overrules `to`.
        """
        queue_ids = [whole("queue_ids", queue_id, INT32_MAX) for queue_id in queue_ids]
        request = pb.ResetOffsetsRequest(group=reader_group, topic=topic, queue_ids=queue_ids)
        if time_ms is not None:
            request.time_ms = time_ms
        elif isinstance(to, int):
            request.offset = to
        else:
            match start_of("to", to):
                case Start.EARLIEST:
                    request.earliest = True
                case Start.LATEST:
                    request.latest = True
                case Start.COMMITTED:
                    raise ValueError("to: EARLIEST, LATEST, or an offset")
        answer = await self._call(self._groups.ResetOffsets, request, timeout_s)
        return list(map(_group_offset, answer.offsets))

    async def groups(self, *, timeout_s: float | None = None) -> list[str]:
        """Names of all reader groups that committed something."""
        pages = paged(self._call, self._groups.ListGroups, pb.ListGroupsRequest(), timeout_s)
        return [group async for page in pages for group in page.groups]

    async def delete_group(self, group: str, *, timeout_s: float | None = None) -> None:
        """Delete the offsets that the reader group committed. Repeatable."""
        await self._call(self._groups.DeleteGroup, pb.DeleteGroupRequest(group=group), timeout_s)

    # --- the server ------------------------------------------------------------------------

    async def statistics(self, *, timeout_s: float | None = None) -> dict[str, float]:
        """The server's numbers, by name; units in the names."""
        answer = await self._call(self._admin.GetStatistics, pb.GetStatisticsRequest(), timeout_s)
        return dict(answer.values)

    async def server_version(self, *, timeout_s: float | None = None) -> str:
        """The version of the program that answers."""
        answer = await self._call(self._admin.GetStatistics, pb.GetStatisticsRequest(), timeout_s)
        version: str = answer.version
        return version

    async def activity(self, *, timeout_s: float | None = None) -> Activity:
        """Traffic by topic, and how far groups are behind."""
        answer = await self._call(self._admin.GetActivity, pb.GetActivityRequest(), timeout_s)
        return from_wire(Activity, answer)

    async def settings(self, *, timeout_s: float | None = None) -> list[ServerSetting]:
        """Every setting of the server: what holds now, and where it came from."""
        answer = await self._call(self._admin.GetSettings, pb.GetSettingsRequest(), timeout_s)
        return [ServerSetting.of(one) for one in answer.settings]

    async def reload_settings(self, *, timeout_s: float | None = None) -> ReloadedSettings:
        """The server reads its settings again, and takes those that may change while it runs.

        Raises NotPossibleError, reason SETTINGS_REFUSED, when they are wrong: the old ones stay.
        """
        answer = await self._call(self._admin.ReloadSettings, pb.ReloadSettingsRequest(), timeout_s)
        return ReloadedSettings.of(answer)


def _parts(queues: Iterable[Queue]) -> Iterable[list[pb.Queue]]:
    wanted = [pb.Queue(topic=one.topic, queue_id=one.queue_id) for one in map(_queue, queues)]
    for begin in range(0, len(wanted), _QUEUES_A_CALL):
        yield wanted[begin : begin + _QUEUES_A_CALL]


_queue = partial(queue_of, "queues")


def _retention_out(retention: Retention) -> pb.Retention:
    *numbers, latest = retention
    time_ms, size, messages = (whole("retention", number) for number in numbers)
    return pb.Retention(time_ms=time_ms, bytes=size, messages=messages, latest=bool(latest))


def _given_at(one: pb.PullResponse | pb.QueueOffsets | pb.GroupOffset) -> int | None:
    return one.given_at if one.HasField("given_at") else None


def _group_offset(one: pb.GroupOffset) -> GroupOffset:
    at = _given_at(one)
    return GroupOffset(
        one.topic,
        one.queue_id,
        position(one.offset, at) if one.HasField("offset") else None,
        position(one.min_offset, at),
        position(one.max_offset, at),
        one.lag,
    )
