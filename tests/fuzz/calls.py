"""Calls a server at random, and judges each answer: a declared status, with its reason.

A server with users is called by several, also one without rights and one that is none: what each
may do decides how a call is answered, and no answer tells what its caller may not know.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import grpc

from kvcq_client import Credentials
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import kvcq_pb2_grpc, lite_topics_pb2_grpc
from kvcq_client.pb.v1 import lite_topics_pb2 as lite_pb
from kvcq_client.transport.secured import Signer
from server.rocketmq.pb import values_pb2 as v2
from server.wire.status import STATUS_BY_ERROR
from tests.fuzz.requests import (
    CONTROL_GROUP,
    CONTROL_TOPIC,
    LITE_PARENT,
    METHODS,
    USERS,
    mutated,
    request_of,
)
from tests.support.rocketmq import SERVICE, status_in
from tests.support.rpc_errors import error_info
from tests.support.users import ADMIN, secret_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.descriptor import MethodDescriptor

#: Of a server with users: an administrator first, who is as often the caller as all others; a user
#: with a wrong secret, and nobody.
CALLERS = (
    *[ADMIN] * len(USERS),
    *(Credentials(name, secret_of(name)) for name in USERS),
    Credentials("writer", "a-wrong-secret-of-somebody"),
    None,
)
_ROCKETMQ = f"/{SERVICE}/"
#: Under way at a time.
AT_A_TIME = 64
#: What a request may wait for is answered before: a parked pull, a stream that has no end.
SHORT_S, LONG_S = 0.1, 60.0
#: The client's own words when the server ends a stream before all requests are written: it does
#: not tell the server's status then.
_ENDED_WHILE_WRITING = "Internal error from Core"
_ENDLESS = (
    *("Pull", "Receive", "Watch", "Subscribe", "ServerReflectionInfo", "Calls"),
    *("ReceiveMessage", "Telemetry", "WatchTransactions"),
)
#: The store fails, or does not verify: no request may bring that about.
_NEVER = {"INTERNAL", "UNKNOWN", "DATA_LOSS", "UNIMPLEMENTED", "CANCELLED"}
_FINAL = {"STORE_FAILED", "FLUSH_FAILED", "STORE_CLOSED", "ENGINE_UNAVAILABLE"}
_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}
_REASONS = {row.reason for row in STATUS_BY_ERROR.values()} - _FINAL


class UndeclaredError(AssertionError):
    """A call was answered as no call may be."""


class Fuzz:
    """One seed's calls; `statuses` counts the answers by method and status."""

    def __init__(
        self, channel: grpc.aio.Channel, seed: int, callers: Sequence[Credentials | None] = (None,)
    ) -> None:
        """`callers`: who calls, at random; the first one does what prepares and checks."""
        self._channel = channel
        self._callers = callers
        self._signers = [None if one is None else Signer(one) for one in callers]
        self._seed = seed
        self._random = Random(seed)
        self._messages = kvcq_pb2_grpc.MessageServiceStub(channel)
        self._groups = kvcq_pb2_grpc.GroupServiceStub(channel)
        self._lite = lite_topics_pb2_grpc.LiteTopicServiceStub(channel)
        self._control: list[object] = []
        self.statuses: Counter[tuple[str, str]] = Counter()

    async def prepare(self) -> None:
        """Store what must be the same afterwards."""
        messages = [
            pb.Message(topic=CONTROL_TOPIC, queue_id=0, body=b"control %d" % number, keys=["c"])
            for number in range(100)
        ]
        await self._messages.PutBatch(
            pb.PutBatchRequest(messages=messages), metadata=self._headers()
        )
        position = pb.QueuePosition(topic=CONTROL_TOPIC, queue_id=0, offset=42)
        await self._groups.CommitOffsets(
            pb.CommitOffsetsRequest(group=CONTROL_GROUP, offsets=[position]),
            metadata=self._headers(),
        )
        parent = lite_pb.CreateLiteParentRequest(topic=LITE_PARENT)
        await self._lite.CreateLiteParent(parent, metadata=self._headers())
        self._control = await self._look()

    async def run(self, calls: int) -> None:
        """So many calls, of each method as many. Raises UndeclaredError."""
        numbers = iter(range(calls))

        async def work() -> None:
            for number in numbers:
                await self._call(METHODS[number % len(METHODS)])

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_A_TIME):
                group.create_task(work())

    async def check_control(self) -> None:
        """Raises UndeclaredError when what was stored before is not the same."""
        if await self._look() != self._control:
            raise UndeclaredError(f"seed {self._seed}: the control data changed")

    async def _look(self) -> list[object]:
        pulled = await self._messages.Pull(
            pb.PullRequest(topic=CONTROL_TOPIC, queue_id=0, max_messages=1000),
            timeout=LONG_S,
            metadata=self._headers(),
        )
        queried = await self._messages.Query(
            pb.QueryRequest(topic=CONTROL_TOPIC, key="c", max_messages=1000),
            timeout=LONG_S,
            metadata=self._headers(),
        )
        offsets = await self._groups.FetchOffsets(
            pb.FetchOffsetsRequest(
                group=CONTROL_GROUP, queues=[pb.Queue(topic=CONTROL_TOPIC, queue_id=0)]
            ),
            timeout=LONG_S,
            metadata=self._headers(),
        )
        # Where the log ended, which it does elsewhere by now.
        pulled.ClearField("given_at")
        for offset in offsets.offsets:
            offset.ClearField("given_at")
        return [pulled, queried, offsets]

    def _headers(self, caller: int = 0) -> Any:  # noqa: ANN401 - as grpc takes them
        signer = self._signers[caller]
        return () if signer is None else signer.headers()

    def _request(self, method: MethodDescriptor) -> bytes:
        random = self._random
        data = request_of(random, method.input_type).SerializeToString()
        return mutated(random, data) if random.random() < 0.1 else data

    async def _call(self, method: MethodDescriptor) -> None:
        path = f"/{method.containing_service.full_name}/{method.name}"
        timeout_s = SHORT_S if method.name in _ENDLESS else LONG_S
        requests = [self._request(method)]
        if method.client_streaming and self._random.random() < 0.3:
            requests += [self._request(method) for _ in range(3)]
        caller = self._random.randrange(len(self._callers))
        may_see_all = self._callers[caller] == self._callers[0]
        client = (("x-mq-client-id", f"client-{caller}"),) if path.startswith(_ROCKETMQ) else ()
        given: Any = {"timeout": timeout_s, "metadata": (*self._headers(caller), *client)}
        try:
            if not (method.client_streaming or method.server_streaming):
                response = await self._channel.unary_unary(path, None, None)(requests[0], **given)
                self._look_at(path, response, may_see_all=may_see_all)
            elif len(requests) == 1:
                # On the wire a stream of one request is the same.
                one: Any = self._channel.unary_stream(path, None, None)
                async for response in one(requests[0], **given):
                    self._look_at(path, response, may_see_all=may_see_all)
            else:
                many: Any = self._channel.stream_stream(path, None, None)
                async for response in many(iter(requests), **given):
                    self._look_at(path, response, may_see_all=may_see_all)
        except grpc.aio.AioRpcError as error:
            self._judge(method.name, error, requests)
        else:
            self.statuses[method.name, "OK"] += 1

    def _look_at(self, path: str, response: bytes, *, may_see_all: bool) -> None:
        """It tells nothing that the caller may not know; and what calls that share a stream are
        answered with."""
        if not may_see_all and CONTROL_TOPIC.encode() in response:
            raise UndeclaredError(f"seed {self._seed}: {path} tells of a topic without a right")
        if path.startswith(_ROCKETMQ):
            self._look_at_status(path, response)
        if not path.endswith("/Calls"):
            return
        for result in pb.CallsResponse.FromString(response).results:
            error = result.error
            status = _NAMES[error.code] if result.HasField("error") else "OK"
            self.statuses["Calls", f"{status} within"] += 1
            if status != "OK" and (status in _NEVER or error.reason not in _REASONS):
                raise UndeclaredError(
                    f"seed {self._seed}: on a stream: {status} ({error.reason}): {error.message}"
                )

    def _look_at_status(self, path: str, response: bytes) -> None:
        """The service for RocketMQ's clients refuses in its answers."""
        status = status_in(response)
        self.statuses[f"{path.rpartition('/')[2]} within", v2.Code.Name(status.code)] += 1
        if status.code in (v2.INTERNAL_SERVER_ERROR, v2.INTERNAL_ERROR):
            raise UndeclaredError(f"seed {self._seed}: {path} was answered {status}")

    def _judge(self, method: str, error: grpc.aio.AioRpcError, requests: list[bytes]) -> None:
        status = error.code().name
        if len(requests) > 1 and error.details() == _ENDED_WHILE_WRITING:
            status = "ended while written"
        self.statuses[method, status] += 1
        if status == "ended while written" or (
            status == "DEADLINE_EXCEEDED" and method in _ENDLESS
        ):
            return
        try:
            reason = error_info(error).reason
        except (KeyError, AssertionError, ValueError):
            reason = "none"
        if status in _NEVER or reason not in _REASONS:
            shown = " ".join(request[:200].hex() for request in requests)
            raise UndeclaredError(
                f"seed {self._seed}: {method} was answered {status} ({reason}): "
                f"{error.details()}; its requests begin with {shown}"
            )
