"""Says again to a server what clients of RocketMQ said once, and holds its answers against those
of the server that they spoke to: this one, or RocketMQ's proxy.

What differs by nature is not compared: times, handles, addresses, places of messages in queues
that are drawn. A handle is replaced by the one that this server gave for the same delivery of the
same message, or for the same send. A receive that found nothing is not made again: it would wait;
one that found something is made until this server has delivered what was delivered then.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc

from server.rocketmq import SERVICE
from server.rocketmq.pb import messaging_pb2 as pb
from server.rocketmq.pb import values_pb2 as v2
from tests.support.until import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.message import Message

#: Receives of a second each until what is to come has come.
_RECEIVES = 20
EOF: object = grpc.aio.EOF  # type: ignore[attr-defined] # the stubs leave it out
_Headers = tuple[tuple[str, str], ...]


class Delivery(NamedTuple):
    """What one delivery says of a message."""

    group: str
    message_id: str
    attempt: int
    body: bytes
    tag: str
    keys: tuple[str, ...]
    message_group: str
    properties: tuple[tuple[str, str], ...]
    message_type: int

    @property
    def key(self) -> tuple[str, str, int]:
        return self.group, self.message_id, self.attempt


class Replay:
    """One conversation, call after call."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        # By the handle that was recorded, that of this server.
        self._handles: dict[str, str] = {}
        # By Delivery.key, what this server delivered, with its handle.
        self._given: dict[tuple[str, str, int], tuple[Delivery, str]] = {}
        self._streams: list[Any] = []

    async def run(self, calls: Sequence[dict[str, Any]]) -> list[tuple[str, Any, Any]]:
        """What was answered otherwise: the call, what was said then, and now."""
        differing = []
        for call in calls:
            then, now = await self._again(call)
            if then != now:
                differing.append((call.get("note") or call["rpc"], then, now))
                if call["rpc"] == "ReceiveMessage":
                    break  # what follows is about what did not come
        for stream in self._streams:
            await stream.done_writing()
            # gRPC has no status of a call whose answers are not all read: one that came unasked
            # would hold this up for ever.
            async with asyncio.timeout(LIMIT_S):
                assert await stream.read() is EOF, "it was said unasked"
                assert await stream.code() is grpc.StatusCode.OK
        return differing

    async def _again(self, call: dict[str, Any]) -> tuple[Any, Any]:
        name, metadata = call["rpc"], tuple(call["metadata"].items())
        input_name, output_name = (
            SERVICE.methods_by_name[name].input_type.name,
            SERVICE.methods_by_name[name].output_type.name,
        )
        request_type, response_type = getattr(pb, input_name), getattr(pb, output_name)
        requests = [request_type.FromString(bytes.fromhex(each)) for each in call["requests"]]
        responses = [response_type.FromString(bytes.fromhex(each)) for each in call["responses"]]
        if name == "ReceiveMessage":
            return await self._receive(requests[0], responses, metadata)
        if name == "Telemetry":
            return await self._tell(requests, responses, metadata)
        self._put_handles(requests[0])
        if name == "SendMessage":
            _put_times(requests[0])
        method: Any = self._channel.unary_unary(f"/{SERVICE.full_name}/{name}", None, None)
        answer = await method(requests[0].SerializeToString(), metadata=metadata, timeout=20)
        then, now = responses[0], response_type.FromString(answer)
        if name == "SendMessage":
            for old, new in zip(then.entries, now.entries, strict=False):
                self._handles[old.transaction_id] = new.transaction_id
                self._handles[old.recall_handle] = new.recall_handle
        return plain(then), plain(now)

    async def _tell(
        self,
        requests: list[pb.TelemetryCommand],
        responses: list[pb.TelemetryCommand],
        metadata: _Headers,
    ) -> tuple[Any, Any]:
        """The stream stays open, as the client's did."""
        method: Any = self._channel.stream_stream(f"/{SERVICE.full_name}/Telemetry", None, None)
        stream = method(metadata=metadata)
        self._streams.append(stream)
        answers = []
        for request in requests:
            async with asyncio.timeout(LIMIT_S):
                await stream.write(request.SerializeToString())
                answers.append(pb.TelemetryCommand.FromString(await stream.read()))
        return [*map(plain, responses)], [*map(plain, answers)]

    async def _receive(
        self,
        request: pb.ReceiveMessageRequest,
        responses: list[pb.ReceiveMessageResponse],
        metadata: _Headers,
    ) -> tuple[Any, Any]:
        group = request.group.name
        messages = [each.message for each in responses if each.HasField("message")]
        then = [_delivery(group, each) for each in messages]
        method: Any = self._channel.unary_stream(f"/{SERVICE.full_name}/ReceiveMessage", None, None)
        request.long_polling_timeout.FromSeconds(1)
        for _ in range(_RECEIVES):
            if all(each.key in self._given for each in then):
                break
            call = method(request.SerializeToString(), metadata=metadata, timeout=20)
            async for part in call:
                answer = pb.ReceiveMessageResponse.FromString(part)
                if answer.HasField("message"):
                    delivery = _delivery(group, answer.message)
                    handle = answer.message.system_properties.receipt_handle
                    self._given[delivery.key] = delivery, handle
        now = [self._given[each.key] for each in then if each.key in self._given]
        for message, (_, handle) in zip(messages, now, strict=False):
            self._handles[message.system_properties.receipt_handle] = handle
        return then, [delivery for delivery, _ in now]

    def _put_handles(self, request: Message) -> None:
        if isinstance(request, pb.AckMessageRequest):
            for entry in request.entries:
                entry.receipt_handle = self._handle(entry.receipt_handle)
        elif isinstance(
            request, pb.ChangeInvisibleDurationRequest | pb.ForwardMessageToDeadLetterQueueRequest
        ):
            request.receipt_handle = self._handle(request.receipt_handle)
        elif isinstance(request, pb.EndTransactionRequest):
            request.transaction_id = self._handle(request.transaction_id)
        elif isinstance(request, pb.RecallMessageRequest):
            request.recall_handle = self._handle(request.recall_handle)

    def _handle(self, recorded: str) -> str:
        return self._handles.get(recorded, recorded)


def _put_times(request: pb.SendMessageRequest) -> None:
    """Delays last as long as they did."""
    for message in request.messages:
        system = message.system_properties
        if system.HasField("delivery_timestamp"):
            system.delivery_timestamp.seconds += int(time.time()) - system.born_timestamp.seconds


def plain(answer: Message) -> Any:  # noqa: ANN401 - values to compare
    """What an answer says that is the same each time."""
    code = v2.Code.Name(answer.status.code)  # type: ignore[attr-defined] # each has one
    match answer:
        case pb.QueryRouteResponse():
            return code, [_queue(each) for each in answer.message_queues]
        case pb.QueryAssignmentResponse():
            return code, [_queue(each.message_queue) for each in answer.assignments]
        case pb.SendMessageResponse() | pb.AckMessageResponse():
            entries = [(v2.Code.Name(each.status.code), each.message_id) for each in answer.entries]
            return code, entries
        case pb.TelemetryCommand():
            return code, answer.settings
    return code


def _queue(queue: v2.MessageQueue) -> tuple[Any, ...]:
    # Later servers take more of them.
    types = [each for each in (v2.NORMAL, v2.FIFO) if each in queue.accept_message_types]
    return queue.topic.name, queue.id, queue.permission, queue.broker.id, types


def _delivery(group: str, message: v2.Message) -> Delivery:
    system = message.system_properties
    return Delivery(
        group,
        system.message_id,
        system.delivery_attempt,
        message.body,
        system.tag,
        tuple(system.keys),
        system.message_group,
        tuple(sorted(message.user_properties.items())),
        system.message_type,
    )
