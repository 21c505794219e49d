"""A call on a shared stream ends as the same call by itself."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import grpc

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from tests.server.services.test_call_stream import pull, put, streaming
from tests.support.rpc_errors import error_info
from tests.support.serving import serving

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from google.protobuf.message import Message

    from tests.support.serving import Served


async def test_a_call_on_the_stream_ends_as_the_same_call_by_itself(tmp_path: Path) -> None:
    """Two servers are asked the same at random, one way and the other."""
    chance = random.Random(7)
    kinds: list[Callable[[], tuple[str, Message]]] = [
        lambda: ("Put", put(chance.randbytes(chance.randrange(50)))),
        lambda: ("Put", pb.PutRequest()),
        lambda: ("Put", put(b"x", tag="\x01")),
        lambda: (
            "Put",
            put(b"x", light_queues=["%LMQ%a", "no light queue"][: chance.randrange(3)]),
        ),
        lambda: ("Pull", pull(chance.randrange(-1, 300), max_messages=chance.randrange(-1, 9))),
        lambda: ("DescribeTopic", pb.DescribeTopicRequest(name=chance.choice(["T", "", "none"]))),
        lambda: ("Get", pb.GetRequest(message_id=chance.choice(["", "no id", f"{5:032X}"]))),
    ]
    async with serving(tmp_path / "one") as one, serving(tmp_path / "other") as other:
        for served in (one, other):
            await served.topics.CreateTopics(
                pb.CreateTopicsRequest(topics=[pb.CreateTopicRequest(name="T", queue_count=1)])
            )
        async with streaming(one) as stream:
            for at in range(400):
                method, request = chance.choice(kinds)()
                await stream.send((at, method, request))
                result = await stream.result()
                assert result.id == at
                assert told(method, result) == await alone(other, method, request), request


RESPONSES: dict[str, type[Message]] = {
    "Put": pb.PutResponse,
    "Pull": pb.PullResponse,
    "DescribeTopic": pb.DescribeTopicResponse,
    "Get": pb.GetResponse,
}


def told(method: str, result: pb.CallResult) -> object:
    if result.HasField("error"):
        error = result.error
        given = {name: value for name, value in error.metadata.items() if name != "requestId"}
        return error.code, error.message, error.reason, given
    return plain(RESPONSES[method].FromString(result.response))


async def alone(served: Served, method: str, request: Message) -> object:
    stub: Any = served.topics if method == "DescribeTopic" else served.messages
    try:
        return plain(await getattr(stub, method)(request))
    except grpc.aio.AioRpcError as error:
        info = error_info(error)
        given = {name: value for name, value in info.metadata.items() if name != "requestId"}
        return error.code().value[0], error.details(), info.reason, given


def plain(response: Message) -> object:
    """What does not hang on the time, or on who asks."""
    if isinstance(response, pb.PutResponse):
        return response.placed.queue_id, response.placed.queue_offset
    if isinstance(response, pb.PullResponse):
        return response.status, response.next_offset, [one.body for one in response.messages]
    if isinstance(response, pb.GetResponse):
        return response.message.body
    if isinstance(response, pb.DescribeTopicResponse):
        return response.topic.name, list(response.queues)
    return response
