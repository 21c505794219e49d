"""A client of RocketMQ's protocol, call by call: what the official ones send and need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.duration_pb2 import Duration

from server.rocketmq.pb import messaging_pb2 as pb
from server.rocketmq.pb import values_pb2 as v2
from server.rocketmq.pb.messaging_pb2_grpc import MessagingServiceStub

if TYPE_CHECKING:
    from collections.abc import Sequence

    import grpc

ENDPOINTS = v2.Endpoints(scheme=v2.IPv4, addresses=[v2.Address(host="127.0.0.1", port=8081)])


class Client:
    """One client: its id goes with each call."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        client_id: str = "host@1@0@abc",
        metadata: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.call: Any = MessagingServiceStub(channel)  # type: ignore[no-untyped-call]
        self.metadata = (*metadata, ("x-mq-client-id", client_id))
        self._ids = 0

    def message(self, topic: str, body: bytes = b"x", **system: Any) -> v2.Message:  # noqa: ANN401
        """A message with an id of its own; fields of its system properties by name."""
        self._ids += 1
        given = {"message_id": f"01ID{self._ids}", "body_encoding": v2.IDENTITY, **system}
        properties = given.pop("properties", {})
        return v2.Message(
            topic=v2.Resource(name=topic),
            body=body,
            user_properties=properties,
            system_properties=v2.SystemProperties(**given),
        )

    async def send(self, *messages: v2.Message) -> pb.SendMessageResponse:
        request = pb.SendMessageRequest(messages=messages)
        return await self.call.SendMessage(request, metadata=self.metadata)  # type: ignore[no-any-return]

    async def route(self, topic: str) -> pb.QueryRouteResponse:
        request = pb.QueryRouteRequest(topic=v2.Resource(name=topic), endpoints=ENDPOINTS)
        return await self.call.QueryRoute(request, metadata=self.metadata)  # type: ignore[no-any-return]

    async def receive(
        self,
        group: str,
        topic: str,
        *,
        invisible_s: float = 30,
        poll_s: float = 0,
        filter_: str = "*",
        filter_type: v2.FilterType = v2.TAG,
        timeout: float = 60,
        **given: Any,  # noqa: ANN401
    ) -> tuple[v2.Status, list[v2.Message]]:
        """The status and the messages; the time of the delivery has come last."""
        request = pb.ReceiveMessageRequest(
            group=v2.Resource(name=group),
            message_queue=v2.MessageQueue(topic=v2.Resource(name=topic), id=-1),
            filter_expression=v2.FilterExpression(type=filter_type, expression=filter_),
            long_polling_timeout=_duration(poll_s),
            **{"batch_size": 32, **given},
        )
        if not request.auto_renew:
            request.invisible_duration.CopyFrom(_duration(invisible_s))
        call = self.call.ReceiveMessage(request, metadata=self.metadata, timeout=timeout)
        parts = [part async for part in call]
        kinds = [part.WhichOneof("content") for part in parts]
        assert kinds[0] == "status"
        if len(parts) > 1:
            assert kinds == ["status", *["message"] * (len(parts) - 2), "delivery_timestamp"]
        return parts[0].status, [part.message for part in parts[1:-1]]

    async def acknowledge(
        self, group: str, topic: str, handles: Sequence[str]
    ) -> pb.AckMessageResponse:
        request = pb.AckMessageRequest(
            group=v2.Resource(name=group),
            topic=v2.Resource(name=topic),
            entries=[
                pb.AckMessageEntry(message_id="m", receipt_handle=handle) for handle in handles
            ],
        )
        return await self.call.AckMessage(request, metadata=self.metadata)  # type: ignore[no-any-return]

    async def change(
        self,
        group: str,
        topic: str,
        handle: str,
        hold_s: float,
        **given: Any,  # noqa: ANN401
    ) -> pb.ChangeInvisibleDurationResponse:
        request = pb.ChangeInvisibleDurationRequest(
            group=v2.Resource(name=group),
            topic=v2.Resource(name=topic),
            receipt_handle=handle,
            invisible_duration=_duration(hold_s),
            message_id="m",
            **given,
        )
        return await self.call.ChangeInvisibleDuration(request, metadata=self.metadata)  # type: ignore[no-any-return]

    async def sync(
        self,
        group: str,
        parent: str,
        *names: str,
        action: v2.LiteSubscriptionAction = v2.COMPLETE_ADD,
        **given: Any,  # noqa: ANN401
    ) -> v2.Status:
        request = pb.SyncLiteSubscriptionRequest(
            action=action,
            topic=v2.Resource(name=parent),
            group=v2.Resource(name=group),
            lite_topic_set=names,
            **given,
        )
        answer = await self.call.SyncLiteSubscription(request, metadata=self.metadata)
        return answer.status  # type: ignore[no-any-return]

    async def end(self, group: str) -> v2.Status:
        request = pb.NotifyClientTerminationRequest(group=v2.Resource(name=group))
        answer = await self.call.NotifyClientTermination(request, metadata=self.metadata)
        return answer.status  # type: ignore[no-any-return]

    def telemetry(self) -> Any:  # noqa: ANN401 - grpc's call
        return self.call.Telemetry(metadata=self.metadata)

    async def settle(self, stream: Any, settings: v2.Settings) -> pb.TelemetryCommand:  # noqa: ANN401
        await stream.write(pb.TelemetryCommand(settings=settings))
        return await stream.read()  # type: ignore[no-any-return]


def _duration(seconds: float) -> Duration:
    whole = int(seconds // 1)
    return Duration(seconds=whole, nanos=round((seconds - whole) * 1e9))


def handle_of(message: v2.Message) -> str:
    handle: str = message.system_properties.receipt_handle
    return handle
