"""What one hostile client may do to a server within seconds: each a coroutine that returns with all
of it still under way, and the connections to be closed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kvcq_client import Credentials
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import shared_groups_pb2
from kvcq_client.transport.secured import Signer
from tests.support.raw_http2 import RawHttp2, grpc_message

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from google.protobuf.message import Message

    Headers = list[tuple[str, str]]

#: Streams of one connection: see PLACES of server/edge.
_STREAMS = 500
#: Calls that one connection sends before the other has its turn.
_BURST = 200
TOPIC = "t"
GROUP = "g"


def headers_of(name: str, secret: str) -> Headers:
    """What a user signs a call with."""
    found: Any = Signer(Credentials(name, secret)).headers()
    return [(key, value) for key, value in found]


async def unread_answers(target: str, headers: Headers, streams: int) -> list[RawHttp2]:
    """Streams of calls on and on, none of whose answers are read. Topic TOPIC has 1 MiB in it."""
    pull = pb.PullRequest(topic=TOPIC, max_messages=60, max_bytes=60 << 10)
    return await _unread(target, headers, streams, "Pull", pull)


async def unread_receives(target: str, headers: Headers, streams: int) -> list[RawHttp2]:
    """The same of receives for GROUP, which has every message delivered again at once."""
    receive = shared_groups_pb2.ReceiveRequest(
        group=GROUP, topic=TOPIC, max_messages=60, max_bytes=60 << 10, invisible_ms=1
    )
    return await _unread(target, headers, streams, "Receive", receive)


async def _unread(
    target: str, headers: Headers, streams: int, method: str, request: Message
) -> list[RawHttp2]:
    read = request.SerializeToString()
    put = pb.PutRequest(message=pb.Message(topic="no", body=bytes(300 << 10))).SerializeToString()
    pulls = [
        pb.CallsRequest(
            calls=[
                pb.Call(id=200 * at + number, method=method, request=read) for number in range(60)
            ]
        )
        for at in range(10)
    ]
    puts = [
        pb.CallsRequest(calls=[pb.Call(id=at, method="Put", request=put)]) for at in range(-9, 0)
    ]
    data = b"".join(grpc_message(each.SerializeToString()) for each in (*pulls, *puts))
    return await _on_streams(target, "/kvcq.v1.CallService/Calls", headers, streams, data)


async def held_back_puts(target: str, headers: Headers, streams: int) -> list[RawHttp2]:
    """Streams of batches of a user whose limit they are above from the first one on."""
    message = pb.Message(topic=TOPIC, queue_id=0, body=bytes(900 << 10))
    request = pb.PutStreamRequest(batch=pb.PutBatchRequest(messages=[message]))
    data = 4 * grpc_message(request.SerializeToString())
    return await _on_streams(target, "/kvcq.v1.MessageService/PutStream", headers, streams, data)


async def many_queues(target: str, headers: Headers, streams: int, queues: int) -> list[RawHttp2]:
    """Subscriptions with so many queues each."""
    connection = await RawHttp2.open(target)
    for stream in range(streams):
        number = connection.begin("/kvcq.v1.MessageService/Subscribe", headers)
        for begin in range(0, queues, 50_000):
            request = pb.SubscribeRequest(
                add=[
                    pb.QueuePosition(topic=f"%LMQ%{stream}/{at:024}", queue_id=0, offset=0)
                    for at in range(begin, begin + 50_000)
                ]
            )
            data = grpc_message(request.SerializeToString())
            if await connection.send(number, data, within_s=60) < len(data):
                break
    return [connection]


async def begun_and_reset(target: str, headers: Headers, calls: int) -> list[RawHttp2]:
    """Puts that are begun, sent and given up, as fast as they leave, over two connections.

    So many, not for so long: what a server holds of them is what it has not come to yet.
    """
    put = pb.PutRequest(message=pb.Message(topic=TOPIC, queue_id=0, body=b"x" * 100))
    data = grpc_message(put.SerializeToString())
    connections = [await RawHttp2.open(target) for _ in range(2)]
    for _ in range(calls // (len(connections) * _BURST)):
        for connection in connections:
            for _ in range(_BURST):
                number = connection.begin("/kvcq.v1.MessageService/Put", headers)
                connection.send_at_once(number, data)
                connection.reset(number)
            await connection.flush()
        await asyncio.sleep(0)
    return connections


async def begun_and_never_sent(
    target: str, path: str, headers: Headers, calls: int, connections: int
) -> list[RawHttp2]:
    """So many calls in all, of none of which anything is sent."""
    opened = [await RawHttp2.open(target) for _ in range(connections)]
    for at in range(calls):
        opened[at % connections].begin(path, headers)
    for connection in opened:
        await connection.flush()
    return opened


async def _on_streams(
    target: str, path: str, headers: Headers, streams: int, data: bytes
) -> list[RawHttp2]:
    connections = []
    sends: list[Awaitable[int]] = []
    for begin in range(0, streams, _STREAMS):
        connection = await RawHttp2.open(target)
        connections.append(connection)
        for _ in range(min(_STREAMS, streams - begin)):
            number = connection.begin(path, headers)
            sends.append(connection.send(number, data, within_s=20))
    await asyncio.gather(*sends)
    return connections


async def close(connections: list[RawHttp2]) -> None:
    """What an attack left under way."""
    for connection in connections:
        await connection.close()
