"""server/fronts/: what a handler sees of a call that came in at a front, and its client gets."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from server.errors import MemoryFullError
from server.fronts import FrontMethod, Fronts, calls, fleet, frames
from server.fronts.frames import WINDOW_BYTES
from tests.support.front_here import FrontHere
from tests.support.until import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

EOF: object = grpc.aio.EOF  # type: ignore[attr-defined] # the stubs leave it out
PIECE = bytes(64 << 10)
#: What gRPC and the sockets hold of a stream by themselves.
BUFFERED = (4 << 20) // len(PIECE)


class Fronted:
    """Two methods behind one front: the test says what they do."""

    def __init__(self) -> None:
        self.unary: Callable[[Any], Awaitable[bytes]]
        self.stream: Callable[[Any], AsyncIterator[bytes]]
        methods = [
            FrontMethod("/s/Unary", False, False, False, 16 << 20),
            FrontMethod("/s/Waits", False, False, True, 16 << 20),
            FrontMethod("/s/Stream", True, True, False, 16 << 20),
        ]
        options = (("grpc.max_receive_message_length", -1), ("grpc.http2.bdp_probe", 0))
        self.fronts = Fronts(1, options, methods, None, None)
        self.fronts._start = self._start
        self.started: list[FrontHere] = []

        async def unary(_: object, context: Any) -> bytes:  # noqa: ANN401 - gRPC's own
            return await self.unary(context)

        async def stream(_: object, context: Any) -> AsyncIterator[bytes]:  # noqa: ANN401
            async for one in self.stream(context):
                yield one

        handlers = {
            "Unary": grpc.stream_unary_rpc_method_handler(unary),
            "Waits": grpc.stream_unary_rpc_method_handler(unary),
            "Stream": grpc.stream_stream_rpc_method_handler(stream),
        }
        self.fronts.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", handlers),))

    async def _start(self, pair: Any) -> FrontHere:  # noqa: ANN401 - a socket
        self.started.append(await FrontHere.start(pair))
        return self.started[-1]


@pytest.fixture
def fronted() -> Fronted:
    return Fronted()


@asynccontextmanager
async def channel_to(fronted: Fronted) -> AsyncIterator[Any]:
    port = fronted.fronts.hold("127.0.0.1", 0, secured=False)
    await fronted.fronts.start()
    options = (("grpc.max_receive_message_length", -1), ("grpc.initial_reconnect_backoff_ms", 100))
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
            yield channel
    finally:
        await fronted.fronts.stop(None)


async def test_a_handler_sees_who_calls_with_what_and_until_when(fronted: Fronted) -> None:
    seen: dict[str, Any] = {}

    async def unary(context: Any) -> bytes:  # noqa: ANN401 - gRPC's own
        seen["metadata"] = dict(context.invocation_metadata())
        seen["peer"], seen["remaining_s"] = context.peer(), context.time_remaining()
        return bytes(await context.read()) + b"!"  # a large one is a memoryview

    fronted.unary = unary
    async with channel_to(fronted) as channel:
        metadata = (("name", "value"), ("a-bin", b"\x00\xff"))
        assert await channel.unary_unary("/s/Unary")(b"hi", metadata=metadata, timeout=30) == b"hi!"
        assert metadata[0] in seen["metadata"].items()
        assert metadata[1] in seen["metadata"].items()
        assert seen["peer"].startswith("ipv4:127.0.0.1:")
        assert 20 < seen["remaining_s"] < 31  # on the wire it is rounded up
        assert await channel.unary_unary("/s/Waits")(PIECE * 40) == PIECE * 40 + b"!"
        assert seen["remaining_s"] is None
        too_much = b"x" * ((16 << 20) + 1)
        answer = await channel.unary_unary("/s/Unary")(too_much)
        assert answer == bytes(len(too_much)) + b"!", "its size alone is passed on"


@pytest.mark.parametrize("path", ["/s/Unary", "/s/Waits"])
async def test_a_status_comes_with_its_text_and_trailers(fronted: Fronted, path: str) -> None:
    """Also when the handler ends the call before it has read anything."""
    trailers = (("grpc-status-details-bin", b"\x00\x01"), ("x-request-id", "7"))

    async def unary(context: Any) -> bytes:  # noqa: ANN401 - gRPC's own
        await context.abort(grpc.StatusCode.DATA_LOSS, "gone: ä", trailers)
        raise AssertionError("abort returned")

    fronted.unary = unary
    async with channel_to(fronted) as channel:
        call = channel.stream_unary(path)()  # its request never comes
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call
        assert (refused.value.code(), refused.value.details()) == (
            grpc.StatusCode.DATA_LOSS,
            "gone: ä",
        )
        told: Any = refused.value.trailing_metadata()
        assert tuple(told) == trailers


async def test_what_nobody_serves_is_unimplemented(fronted: Fronted) -> None:
    async with channel_to(fronted) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary("/s/None")(b"")
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_handler_that_breaks_tells_the_caller_little(
    fronted: Fronted, caplog: pytest.LogCaptureFixture
) -> None:
    async def unary(_: object) -> bytes:
        raise KeyError("a secret")

    fronted.unary = unary
    async with channel_to(fronted) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary("/s/Unary")(b"")
        assert refused.value.code() is grpc.StatusCode.UNKNOWN
        assert "secret" not in (refused.value.details() or "")
        assert "a secret" in caplog.text


class Waiting:
    """A call that is never answered: how it ended."""

    def __init__(self) -> None:
        self.began, self.cancelled, self.over = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.overs = 0

    async def unary(self, context: Any) -> bytes:  # noqa: ANN401 - gRPC's own
        context.add_done_callback(self._over)
        await context.read()
        self.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        raise AssertionError("nobody sets it")

    def _over(self, _: object) -> None:
        assert self.cancelled.is_set(), "the handler first"
        self.overs += 1
        self.over.set()


@pytest.mark.parametrize("how", ["cancelled", "too late", "its front dies"])
async def test_a_call_that_is_given_up_ends_its_handler(fronted: Fronted, how: str) -> None:
    waiting = Waiting()
    fronted.unary = waiting.unary
    async with channel_to(fronted) as channel, asyncio.timeout(LIMIT_S):
        await channel.channel_ready()
        timeout = 2.0 if how == "too late" else None
        call = channel.unary_unary("/s/Unary")(b"", timeout=timeout)
        if how == "cancelled":
            await waiting.began.wait()
            call.cancel()
        elif how == "its front dies":
            await waiting.began.wait()
            fronted.started[0].kill()
        await waiting.over.wait()
        assert waiting.overs == 1
        with pytest.raises((grpc.aio.AioRpcError, asyncio.CancelledError)):
            await call


async def test_a_front_that_ended_is_started_again(
    fronted: Fronted, caplog: pytest.LogCaptureFixture
) -> None:
    async def unary(context: Any) -> bytes:  # noqa: ANN401 - gRPC's own
        return bytes(await context.read())

    fronted.unary = unary
    async with channel_to(fronted) as channel, asyncio.timeout(LIMIT_S):
        assert await channel.unary_unary("/s/Unary")(b"1") == b"1"
        fronted.started[0].kill()
        again = channel.unary_unary("/s/Unary")(b"2", wait_for_ready=True)
        try:
            assert await again == b"2"
        except grpc.aio.AioRpcError:  # it was on its way when the connection broke
            assert await channel.unary_unary("/s/Unary")(b"2", wait_for_ready=True) == b"2"
        numbers = fronted.fronts.statistics()
        assert (numbers["server.fronts.running"], numbers["server.fronts.restarts"]) == (1, 1)
        assert numbers["server.front.0.calls"] >= 2
    assert "starting another one in 0.1 s" in caplog.text


async def test_a_front_that_does_not_answer_is_ended(
    fronted: Fronted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fleet, "_ASK_S", 0.01)
    async with channel_to(fronted), asyncio.timeout(LIMIT_S):
        link = fronted.started[0].front._link
        taken = link._taken

        def deaf(kind: int, call: int, body: bytes) -> None:
            if kind != frames.ALIVE:
                taken(kind, call, body)

        link._taken = deaf
        await until(lambda: len(fronted.started) >= 2)
    assert "does not respond" in caplog.text


async def test_answers_that_nobody_reads_are_not_made(fronted: Fronted) -> None:
    made = 0

    async def stream(_: object) -> AsyncIterator[bytes]:
        nonlocal made
        while True:
            made += 1
            yield PIECE

    fronted.stream = stream
    async with channel_to(fronted) as channel:
        call: Any = channel.stream_stream("/s/Stream")()
        for read in range(200):
            assert await call.read() == PIECE
            assert made - read <= BUFFERED
        call.cancel()


async def test_many_small_answers_pass_the_window(fronted: Fronted) -> None:
    async def stream(_: object) -> AsyncIterator[bytes]:
        for number in range(3 * WINDOW_BYTES // 64):
            yield b"%d" % number

    fronted.stream = stream
    async with channel_to(fronted) as channel:
        got = [one async for one in channel.stream_stream("/s/Stream")()]
    assert got == [b"%d" % number for number in range(3 * WINDOW_BYTES // 64)]


async def test_requests_that_nobody_asks_for_are_not_read(fronted: Fronted) -> None:
    asked = asyncio.Semaphore(0)
    taken: asyncio.Queue[object] = asyncio.Queue()

    async def stream(context: Any) -> AsyncIterator[bytes]:  # noqa: ANN401 - gRPC's own
        while True:
            await asked.acquire()
            request = await context.read()
            taken.put_nowait(request)
            if request is EOF:
                yield b"end"
                return

    fronted.stream = stream
    sent = 0
    async with channel_to(fronted) as channel:
        call: Any = channel.stream_stream("/s/Stream")()

        async def send() -> None:
            nonlocal sent
            for _ in range(200):
                await call.write(PIECE)
                sent += 1
            await call.done_writing()

        sending = asyncio.create_task(send())
        for read in range(200):
            asked.release()
            assert await taken.get() == PIECE
            assert sent - read <= BUFFERED
        await sending
        asked.release()
        assert await taken.get() is EOF
        assert await call.read() == b"end"
        assert await call.read() is EOF


async def test_what_came_before_it_was_asked_for_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request of each of a thousand streams that are held back is not kept without end."""
    monkeypatch.setattr(calls, "UNREAD_BYTES", 100)
    unread = calls._Unread()
    told: list[int] = []
    link: Any = SimpleNamespace(send=lambda kind, *_: told.append(kind))
    opening = frames.Opening(0, frames.NEVER, "peer", b"", None)

    def context_of(most_bytes: int) -> calls.FrontContext:
        method = FrontMethod("/s/Stream", True, True, True, most_bytes)
        return calls.FrontContext(link, 1, opening, method, unread)

    small, large = [context_of(1000) for _ in range(3)], context_of(16 << 20)
    for context in (*small, large):
        reading = asyncio.create_task(context.read())
        await asyncio.sleep(0)
        context.came(b"asked for")
        assert await reading == b"asked for"
    assert told.count(frames.READ) == 4 + 3, "of what may be large none is read ahead"
    for context in small:
        context.came(bytes(60))
    assert unread.size == 60
    assert await small[0].read() == bytes(60)
    for context in small[1:]:
        with pytest.raises(MemoryFullError):
            await context.read()
    small[1].came(bytes(60))
    small[1].is_over()
    assert unread.size == 0
