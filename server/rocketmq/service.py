"""The calls of RocketMQ 5's clients: decode, call, encode."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, NoReturn

from server.access import ResourceKind, Role, current_caller
from server.errors import ClientStatusError, ForbiddenError
from server.reads import Receive
from server.rocketmq.clients import Clients, client_of
from server.rocketmq.kinds import accepted, kind_of
from server.rocketmq.lite import LiteConsumers, is_lite
from server.rocketmq.messages_in import messages_in, times_in
from server.rocketmq.messages_out import EncodedAnswer, encode_answer
from server.rocketmq.pb import messaging_pb2 as pb
from server.rocketmq.pb import messaging_pb2_grpc
from server.rocketmq.pb import values_pb2 as v2
from server.rocketmq.renewals import HOLD_MS, Renewals
from server.rocketmq.routes import ANY_QUEUE, broker_of, queues_out
from server.rocketmq.settings import LONGEST_POLL_MS, MOST_RECEIVED, of_consumer, of_producer
from server.rocketmq.settling import Settling
from server.rocketmq.statuses import OK, common
from server.rocketmq.telemetry import Streams, telemetry
from server.rocketmq.times import milliseconds_of
from server.rocketmq.transactions import is_transaction
from server.wire import MAX_SENT, Budget, host_of_peer, not_more, not_negative
from store.errors import InvalidArgumentError, UnknownGroupError, UnknownTopicError
from store.groups import MOST_ATTEMPT_ID, MOST_HANDLES
from store.held import Recall
from store.reads import parse_filter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from server.edge import Context, Requests
    from server.puts import Puts, Settlements
    from server.reads import Reads
    from server.rocketmq.transactions import Transactions
    from server.stage import Stage
    from server.workers import Pools
    from store.groups import Received
    from store.message import Message
    from store.message_store import MessageStore
    from store.metadata import SharedGroup, TopicConfig
    from store.reads import Filter

#: A receive is answered this long before its deadline.
_RESERVE_S = 0.2
#: Most bytes of records in one receive.
MOST_BYTES = 4 << 20
#: A route with more queues is built in a thread: each takes some microseconds.
QUEUES_INLINE = 256
_NO_ANSWERS: Sequence[pb.PullMessageResponse] = ()
#: Prefix of topics for dead letters and retries. They are never created on first use.
_OF_GROUPS = "%"


class RocketmqService(messaging_pb2_grpc.MessagingServiceServicer):
    """The calls of `apache.rocketmq.v2`. Owned by the event loop's thread."""

    def __init__(
        self,
        store: MessageStore,
        puts: Puts,
        reads: Reads,
        pools: Pools,
        stage: Stage,
        settlements: Settlements,
        transactions: Transactions,
        advertised: v2.Endpoints | None,
    ) -> None:
        """`advertised`: address in routes; None for the address that each client used."""
        self._store = store
        self._groups = store.groups
        self._timers = store.timers
        self._puts = puts
        self._reads = reads
        self._pools = pools
        self._stage = stage
        self._transactions = transactions
        self._advertised = advertised
        self._clients = Clients()
        self._streams = Streams()
        self._lite = LiteConsumers(store, reads, pools, self._clients, self._streams)
        self._settling = Settling(settlements)
        self._renewals = Renewals(self._settling, self._clients, stage)
        # The handles of responses that are being sent, by group and attempt id.
        self._sending: dict[tuple[str, str], list[str]] = {}

    # --- clients and routes ----------------------------------------------------------------

    async def QueryRoute(
        self, request: pb.QueryRouteRequest, context: Context
    ) -> pb.QueryRouteResponse | bytes:
        broker = broker_of(request.endpoints, self._advertised)
        topic = await self._topic(request.topic.name)
        ids, types = range(topic.queue_count), self._accepted(topic)

        def route() -> pb.QueryRouteResponse:
            queues = queues_out(request.topic, ids, broker, types)
            return pb.QueryRouteResponse(status=OK, message_queues=queues)

        return route() if len(ids) <= QUEUES_INLINE else await self._pools.scans.encoded(route)

    async def QueryAssignment(
        self, request: pb.QueryAssignmentRequest, context: Context
    ) -> pb.QueryAssignmentResponse | bytes:
        """Every member gets the same: it may receive from any queue, and the server keeps order."""
        broker = broker_of(request.endpoints, self._advertised)
        topic = await self._topic(request.topic.name)
        types = self._accepted(topic)
        group = await self._settings_of(request.group.name)
        ids = range(topic.queue_count) if group is not None and group.in_order else (ANY_QUEUE,)

        def assigned() -> pb.QueryAssignmentResponse:
            queues = queues_out(request.topic, ids, broker, types)
            assignments = [v2.Assignment(message_queue=each) for each in queues]
            return pb.QueryAssignmentResponse(status=OK, assignments=assignments)

        if len(ids) <= QUEUES_INLINE:
            return assigned()
        return await self._pools.scans.encoded(assigned)

    async def Heartbeat(
        self, request: pb.HeartbeatRequest, context: Context
    ) -> pb.HeartbeatResponse:
        self._clients.beat(client_of(context))
        return pb.HeartbeatResponse(status=OK)

    async def NotifyClientTermination(
        self, request: pb.NotifyClientTerminationRequest, context: Context
    ) -> pb.NotifyClientTerminationResponse:
        client = client_of(context)
        self._clients.end(client)
        self._renewals.give_back(client)
        await self._lite.leave(client, request.group.name)
        return pb.NotifyClientTerminationResponse(status=OK)

    async def Telemetry(
        self, requests: Requests, context: Context
    ) -> AsyncGenerator[pb.TelemetryCommand, None]:
        client = client_of(context)

        async def settle(settings: v2.Settings) -> v2.Settings:
            answering(settings)
            kind = settings.WhichOneof("pub_sub")
            if kind is None:
                raise ClientStatusError(
                    v2.BAD_REQUEST, "the settings are neither of a producer nor of a consumer"
                )
            self._clients.note_active(client, is_lite=is_lite(settings))
            if kind == "publishing":
                return of_producer(settings, self._store.config.max_body_bytes)
            group = settings.subscription.group.name
            current_caller().check(Role.SUBSCRIBE, ResourceKind.GROUP, group)
            if is_lite(settings):
                await self._lite.settled(settings)
            return of_consumer(settings, await self._settings_of(group))

        with (
            self._streams.open(client) as outbox,
            self._transactions.answering(outbox) as answering,
        ):
            async with aclosing(telemetry(requests, self._stage, settle, outbox)) as written:
                async for command in written:
                    yield command

    async def _topic(self, topic: str) -> TopicConfig:
        """The topic; created on first use if the caller's rights and the settings allow it. Raises
        UnknownTopicError."""
        try:
            return self._store.describe_topic(topic)
        except UnknownTopicError:
            if not self._store.config.auto_create_topics or topic.startswith(_OF_GROUPS):
                raise
            try:
                current_caller().publishes([topic])
            except ForbiddenError:
                raise UnknownTopicError(topic) from None

        def create() -> TopicConfig:
            (made,) = self._store.create_topics([(topic, 0)])
            self._puts.forget_topic(topic)
            return made

        return await self._pools.changes.run(create)  # a cancelled call continues there

    def _accepted(self, topic: TopicConfig) -> list[v2.MessageType]:
        return accepted(topic.message_type, takes_lite=self._lite.takes_lite(topic.name))

    async def _settings_of(self, group: str) -> SharedGroup | None:
        """Settings of the group; None if it does not exist or is not shared. A receive raises the
        error then."""
        try:
            return await self._pools.lookups.run(self._groups.describe, group)
        except UnknownGroupError:
            return None

    # --- messages --------------------------------------------------------------------------

    async def SendMessage(
        self, request: pb.SendMessageRequest, context: Context, *, large: bool = False
    ) -> pb.SendMessageResponse:
        """Store all messages of the request, or none."""
        if len(request.messages) > MAX_SENT:  # small requests are not counted when they are decoded
            count = f"{len(request.messages)} messages in one request, {MAX_SENT} at most"
            raise InvalidArgumentError("messages", f"{count}: send them in several")
        born_host = host_of_peer(context.peer())
        topic = request.messages[0].topic.name if request.messages else ""
        topic_type = self._puts.type_of(topic)
        types = [kind_of(each.system_properties).type for each in request.messages]
        takes_lite = v2.LITE in types and self._lite.takes_lite(topic)

        def make(budget: Budget) -> list[Message]:
            puts = self._puts
            return messages_in(
                request.messages,
                born_host,
                topic_type,
                puts.choose,
                puts.of_priority,
                budget,
                takes_lite=takes_lite,
            )

        if is_transaction(request.messages, types):
            pools = self._pools
            (message,) = await pools.changes.run(make, Budget()) if large else make(Budget())
            (given,) = request.messages
            entry = pb.SendResultEntry(
                status=OK,
                message_id=given.system_properties.message_id,
                transaction_id=await self._transactions.begin(given, message),
            )
            return pb.SendMessageResponse(status=OK, entries=[entry])
        if times := times_in(request.messages, types):
            done = await self._puts.put_delayed(lambda budget: (make(budget), times))
            offsets: Sequence[int] = done.places
            handles: Sequence[str] = done.handles
        else:
            offsets = await self._puts.put_made(topic, make, large=large)
            handles = [""] * len(offsets)
        return pb.SendMessageResponse(
            status=OK,
            entries=[
                pb.SendResultEntry(
                    status=OK,
                    message_id=each.system_properties.message_id,
                    offset=offset,
                    recall_handle=handle,
                )
                for each, offset, handle in zip(request.messages, offsets, handles, strict=True)
            ],
        )

    async def RecallMessage(
        self, request: pb.RecallMessageRequest, context: Context
    ) -> pb.RecallMessageResponse:
        """A repeated recall before the delivery time gets the same response, as in RocketMQ."""
        topic, handle = request.topic.name, request.recall_handle
        named = self._timers.named(topic, handle)
        done = await self._pools.settling.run(
            lambda: self._timers.recall(topic, [handle], wait=False)
        )
        await self._puts.durability.wait(done.end_offset)
        if done.outcomes != [Recall.RECALLED] and named.due_ms <= self._timers.now_ms():
            raise ClientStatusError(
                v2.BAD_REQUEST, "the message was delivered, or recalled before its time"
            )
        return pb.RecallMessageResponse(status=OK, message_id=named.message_id)

    async def ReceiveMessage(
        self, request: pb.ReceiveMessageRequest, context: Context
    ) -> AsyncGenerator[bytes, None]:
        """Queue ids are ignored: any member of a group may receive a message of any queue."""
        client = client_of(context)
        self._clients.note_active(client)
        topic = request.message_queue.topic
        group = request.group.name
        attempt_id = request.attempt_id if len(request.attempt_id) <= MOST_ATTEMPT_ID else ""
        handles: list[str] = []

        def encode(received: Received) -> EncodedAnswer:
            handles.extend(one.handle for one in received.deliveries)
            return encode_answer(received, topic.resource_namespace, self._store.lease_time_ms())

        answer = await self._lite.take(
            client,
            Receive(
                group,
                topic.name,
                min(_not_negative(request.batch_size) or MOST_RECEIVED, MOST_RECEIVED),
                MOST_BYTES,
                _hold_ms(request),
                _filter_of(request.filter_expression),
                encode,
                attempt_id,
            ),
            _wait_s(request, context.time_remaining()),
        )
        if request.auto_renew:
            self._renewals.begin(client, group, handles)
        attempt = group, attempt_id
        if attempt_id and handles:
            self._sending[attempt] = handles
        is_told = False
        try:
            for part in answer.parts:
                yield part
            is_told = True
        finally:
            # Otherwise the attempt was repeated, and that response has the same handles.
            is_last = not attempt_id or self._sending.get(attempt) is handles
            if attempt_id and is_last:
                del self._sending[attempt]
            if is_last and not is_told and handles:
                self._renewals.give_back_undelivered(group, handles)

    async def AckMessage(
        self, request: pb.AckMessageRequest, context: Context
    ) -> pb.AckMessageResponse:
        group = request.group.name
        not_more("entries", request.entries, MOST_HANDLES, "entries")
        if not request.entries:
            raise InvalidArgumentError("entries", "is empty")
        handles = [each.receipt_handle for each in request.entries]
        statuses = await self._settling.acknowledge(group, handles)
        self._renewals.end(group, handles)
        return pb.AckMessageResponse(
            status=common(statuses),
            entries=[
                pb.AckMessageResultEntry(
                    message_id=each.message_id, receipt_handle=each.receipt_handle, status=status
                )
                for each, status in zip(request.entries, statuses, strict=True)
            ],
        )

    async def ChangeInvisibleDuration(
        self, request: pb.ChangeInvisibleDurationRequest, context: Context
    ) -> pb.ChangeInvisibleDurationResponse:
        """Keeps the handle valid: a new handle would be lost if the response was lost."""
        group, handle = request.group.name, request.receipt_handle
        hold_ms = milliseconds_of(request.invisible_duration)
        if request.suspend:  # the consumer did not process it, so the delivery does not count
            (status,) = await self._settling.give_back(group, [handle], hold_ms, not_begun=True)
        elif hold_ms:
            (status,) = await self._settling.hold_on(group, [handle], hold_ms)
        else:
            (status,) = await self._settling.give_back(group, [handle], 0)
        self._renewals.end(group, [handle])
        return pb.ChangeInvisibleDurationResponse(status=status, receipt_handle=handle)

    async def ForwardMessageToDeadLetterQueue(
        self, request: pb.ForwardMessageToDeadLetterQueueRequest, context: Context
    ) -> pb.ForwardMessageToDeadLetterQueueResponse:
        group, handle = request.group.name, request.receipt_handle
        status = await self._settling.bury(group, handle)
        self._renewals.end(group, [handle])
        return pb.ForwardMessageToDeadLetterQueueResponse(status=status)

    async def EndTransaction(
        self, request: pb.EndTransactionRequest, context: Context
    ) -> pb.EndTransactionResponse:
        await self._transactions.end(request)
        return pb.EndTransactionResponse(status=OK)

    async def SyncLiteSubscription(
        self, request: pb.SyncLiteSubscriptionRequest, context: Context
    ) -> pb.SyncLiteSubscriptionResponse:
        await self._lite.sync(client_of(context), request)
        return pb.SyncLiteSubscriptionResponse(status=OK)

    # --- what is not served ----------------------------------------------------------------

    async def PullMessage(
        self, request: pb.PullMessageRequest, context: Context
    ) -> AsyncGenerator[pb.PullMessageResponse, None]:
        for answer in _NO_ANSWERS:
            yield answer
        _unsupported("pulls by these clients: kvcq's own pull")

    async def UpdateOffset(
        self, request: pb.UpdateOffsetRequest, context: Context
    ) -> pb.UpdateOffsetResponse:
        _unsupported("offsets of these clients: kvcq's own commit them")

    async def GetOffset(
        self, request: pb.GetOffsetRequest, context: Context
    ) -> pb.GetOffsetResponse:
        _unsupported("offsets of these clients: kvcq's own commit them")

    async def QueryOffset(
        self, request: pb.QueryOffsetRequest, context: Context
    ) -> pb.QueryOffsetResponse:
        _unsupported("offsets of these clients: kvcq's own commit them")


def _not_negative(batch_size: int) -> int:
    return not_negative("batch_size", batch_size)


def _hold_ms(request: pb.ReceiveMessageRequest) -> int | None:
    """The requested length of the lease; None for the group's setting."""
    if request.auto_renew:
        return HOLD_MS
    if not request.HasField("invisible_duration"):
        return None
    hold_ms = milliseconds_of(request.invisible_duration)
    if hold_ms <= 0:
        raise InvalidArgumentError("invisible_ms", f"{hold_ms} is not above 0")
    return hold_ms


def _wait_s(request: pb.ReceiveMessageRequest, remaining_s: float | None) -> float:
    """How long a receive may wait for a message: as requested, but less than its deadline."""
    wait_ms = LONGEST_POLL_MS
    if request.HasField("long_polling_timeout"):
        wait_ms = min(wait_ms, max(0, milliseconds_of(request.long_polling_timeout)))
    if remaining_s is None:
        return wait_ms / 1000
    return max(0.0, min(wait_ms / 1000, remaining_s - _RESERVE_S))


def _filter_of(expression: v2.FilterExpression) -> Filter | None:
    if expression.type == v2.SQL:
        return parse_filter("", expression.expression)
    return parse_filter(expression.expression, "")


def _unsupported(what: str) -> NoReturn:
    raise ClientStatusError(v2.UNSUPPORTED, f"this server has no {what}")
