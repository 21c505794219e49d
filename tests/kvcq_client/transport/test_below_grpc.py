"""kvcq_client/transport/below_grpc.py: why a stream ended is heard, whenever that was."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import pytest_asyncio

from kvcq_client.transport import STREAM_OVER, below_grpc, connected, write_request
from tests.support.until import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

_PATH = "/service/Method"
_ROUNDS = 100


class Refusing(grpc.GenericRpcHandler):  # type: ignore[type-arg] # generic in the stubs alone
    """Lets a stream in, and ends it when it is told to."""

    def __init__(self) -> None:
        self.end = threading.Event()
        self.ended = threading.Event()

    def service(self, _: grpc.HandlerCallDetails) -> Any:  # noqa: ANN401 - as grpc takes it
        return grpc.stream_stream_rpc_method_handler(self._serve)

    def _serve(self, _: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        context.send_initial_metadata(())
        self.end.wait()
        context.add_callback(self.ended.set)
        context.set_code(grpc.StatusCode.UNAUTHENTICATED)
        return iter(())


@pytest.fixture
def refusing() -> Refusing:
    return Refusing()


@pytest_asyncio.fixture
async def channel(refusing: Refusing) -> AsyncIterator[grpc.aio.Channel]:
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((refusing,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    refusing.end.set()  # or its thread would wait for ever
    server.stop(None).wait()


async def codes_of_refused(refusing: Refusing, channel: grpc.aio.Channel) -> set[grpc.StatusCode]:
    """The end comes while the loop is held, so that a write is what meets it first."""
    codes = set()
    for _ in range(_ROUNDS):
        refusing.end.clear()
        refusing.ended.clear()
        open_stream: Any = channel.stream_stream(_PATH, None, None)
        stream = open_stream()
        await stream.initial_metadata()
        refusing.end.set()
        refusing.ended.wait()
        with suppress(*STREAM_OVER):
            for _ in range(3):
                await write_request(stream, b"request")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stream.read()
        codes.add(refused.value.code())
    return codes


@pytest.mark.skipif(below_grpc.cygrpc is None, reason="gRPC's own write hides it")
async def test_a_write_hides_no_end(refusing: Refusing, channel: grpc.aio.Channel) -> None:
    assert await codes_of_refused(refusing, channel) == {grpc.StatusCode.UNAUTHENTICATED}


async def test_a_stream_that_was_cancelled_does_not_cancel_who_writes(
    channel: grpc.aio.Channel,
) -> None:
    open_stream: Any = channel.stream_stream(_PATH, None, None)
    stream = open_stream()
    await stream.initial_metadata()
    stream.cancel()
    with pytest.raises(asyncio.InvalidStateError):
        await write_request(stream, b"request")


async def test_a_stream_cancelled_before_it_is_connected_holds_nobody() -> None:
    async with grpc.aio.insecure_channel("127.0.0.1:1") as away:
        open_stream: Any = away.stream_stream(_PATH, None, None)
        stream = open_stream(wait_for_ready=True)
        waiting = asyncio.create_task(connected(stream))
        await asyncio.sleep(0)
        stream.cancel()
        await asyncio.wait_for(waiting, LIMIT_S)
        with pytest.raises(asyncio.InvalidStateError):
            await write_request(stream, b"request")


async def test_a_release_not_measured_may_hide_it(
    refusing: Refusing, channel: grpc.aio.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is gRPC's own write: once it hides nothing, ours is not needed."""
    monkeypatch.setattr(below_grpc, "cygrpc", None)
    assert grpc.StatusCode.INTERNAL in await codes_of_refused(refusing, channel)
