"""server/edge/request_memory.py: turns, cuts, and a process under hostile calls."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.edge import request_memory as memory_module
from server.edge.call_gate import CallKind
from server.edge.request_memory import FIRST_READS, KEPT_SHARE, LARGE_BYTES, RequestMemory
from server.errors import MemoryFullError
from tests.support.private_memory import PrivateMemory, private_mib
from tests.support.server_process import ServerProcess
from tests.support.serving import serving
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MIB = 1 << 20
LIMIT = 512 * MIB


class Process:
    """Private memory as a test says it is, and looks when it wants them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.private = 0
        self.trimmed = 0
        self.memory = RequestMemory(LIMIT, 8 * MIB, private=lambda: self.private, trim=self._trim)
        monkeypatch.setattr(self.memory, "_look_later", lambda: None)

    def _trim(self) -> None:
        self.trimmed += 1

    def look(self) -> None:
        self.memory._look()


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    return Process(monkeypatch)


async def _begun(process: Process, peer: str) -> asyncio.Task[None]:
    task = asyncio.create_task(process.memory.begin_large(peer))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return task


async def test_a_connection_reads_more_at_a_time_the_more_were_small(process: Process) -> None:
    for _ in range(5):
        assert (await _begun(process, "a")).done()
        process.memory.end_large("a", 1000)
    begun = [await _begun(process, "a") for _ in range(FIRST_READS + 6)]
    assert [one.done() for one in begun] == [True] * (FIRST_READS + 5) + [False]
    assert (await _begun(process, "b")).done(), "another connection is not concerned"
    process.memory.end_large("a", 1000)
    await asyncio.wait(begun)


async def test_large_requests_lower_it_to_what_fits_a_quarter(process: Process) -> None:
    for _ in range(20):
        await process.memory.begin_large("a")
        process.memory.end_large("a", 1000)
    await process.memory.begin_large("a")
    process.memory.end_large("a", 60 * MIB)
    begun = [await _begun(process, "a") for _ in range(5)]
    assert [one.done() for one in begun] == [True, True, False, False, False]
    for one in begun:
        one.cancel()


async def test_above_the_limit_one_is_read_at_a_time(process: Process) -> None:
    process.private = LIMIT + 200 * MIB
    first = await _begun(process, "a")
    process.look()
    second = await _begun(process, "b")
    assert (first.done(), second.done()) == (True, False)
    process.memory.end_large("a", 1000)
    await second


async def test_what_ten_thousand_idle_clients_take_refuses_nothing(process: Process) -> None:
    calls = [object() for _ in range(10_000)]
    for call in calls:
        process.memory.readings.begin(call, CallKind.TELEMETRY, is_first=True)
    process.private = LIMIT + 600 * MIB
    process.look()
    assert (await _begun(process, "a")).done()
    assert (await _begun(process, "b")).done()
    task = asyncio.current_task()
    assert task is not None
    await asyncio.sleep(0)
    assert not task.cancelling()
    for call in calls:
        process.memory.readings.end(call, CallKind.TELEMETRY)
    process.look()
    third = await _begun(process, "c")
    assert not third.done(), "nobody is connected, and it is full"
    process.memory.end_large("a", 1000)
    process.memory.end_large("b", 1000)
    await third


async def test_well_above_the_limit_the_newer_half_that_waits_is_refused(
    process: Process,
) -> None:
    first = await _begun(process, "a")
    waiting = [await _begun(process, "a") for _ in range(5)]
    process.private = LIMIT + MIB
    process.look()
    await asyncio.sleep(0)
    assert not any(one.done() for one in waiting)
    process.private = 2 * LIMIT
    process.look()
    await asyncio.sleep(0.001)
    assert [one.done() for one in waiting] == [False, False, False, True, True]
    for one in waiting[3:]:
        with pytest.raises(MemoryFullError):
            await one
    await first
    process.private = 0
    process.look()
    process.memory.end_large("a", 1000)
    await asyncio.gather(*waiting[:1])
    for _ in range(2):
        process.memory.end_large("a", 1000)
    await asyncio.gather(*waiting[:3])


async def test_one_that_waits_too_long_is_refused(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_module, "WAIT_S", 0.0)
    for _ in range(FIRST_READS):
        await process.memory.begin_large("a")
    with pytest.raises(MemoryFullError):
        await process.memory.begin_large("a")
    process.memory.end_large("a", 1000)
    await process.memory.begin_large("a")


async def test_a_response_waits_while_too_much_waits_to_be_sent(process: Process) -> None:
    process.memory.sends(9 * MIB, "a")
    waiting = asyncio.create_task(process.memory.room_to_send("a"))
    await asyncio.sleep(0)
    assert process.memory.is_crowded("a")
    process.memory.sent(9 * MIB, "a")
    await waiting
    await process.memory.room_to_send("a")


async def test_answers_that_one_user_does_not_read_hold_up_no_other(process: Process) -> None:
    memory = process.memory
    memory.sends(9 * MIB, "eve")
    assert memory.is_crowded("eve")
    await memory.room_to_send("ann")
    memory.sends(8 * MIB // KEPT_SHARE, "ann")
    assert memory.is_crowded("ann"), "no longer quiet"
    memory.sends(3 * MIB, "eve")
    assert memory.is_crowded("bob"), "what is kept for the quiet ones is taken as well"
    memory.sent(12 * MIB, "eve")
    memory.sent(8 * MIB // KEPT_SHARE, "ann")
    assert not memory.is_crowded("eve")
    assert memory._sent_by == {}


async def test_requests_are_decoded_while_those_decoded_fit(process: Process) -> None:
    await process.memory.begin_decoding(60 * MIB)
    waiting = asyncio.create_task(process.memory.begin_decoding(60 * MIB))
    small = asyncio.create_task(process.memory.begin_decoding(2 * MIB))
    await asyncio.sleep(0)
    assert not waiting.done()
    process.memory.end_decoding(60 * MIB)
    await waiting
    process.memory.end_decoding(60 * MIB)
    await small


@pytest.mark.parametrize("kind", ["decoded", "sent"])
async def test_a_turn_that_comes_when_its_call_ends_goes_to_the_next(
    process: Process, kind: str
) -> None:
    memory = process.memory
    await memory.begin_decoding(60 * MIB)
    memory.sends(9 * MIB, "a")

    async def wait() -> None:
        await (memory.begin_decoding(60 * MIB) if kind == "decoded" else memory.room_to_send("a"))

    ended, following = asyncio.create_task(wait()), asyncio.create_task(wait())
    await asyncio.sleep(0)
    memory.end_decoding(60 * MIB)
    memory.sent(9 * MIB, "a")
    ended.cancel()
    await asyncio.wait([ended])
    assert ended.cancelled()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert following.done(), "there is room, and nobody left to give the turn on"


async def test_one_that_has_little_to_send_holds_up_nobody(process: Process) -> None:
    process.memory.sends(9 * MIB, "a")
    waiting = [asyncio.create_task(process.memory.room_to_send("a")) for _ in range(3)]
    await asyncio.sleep(0)
    process.memory.sent(9 * MIB, "a")
    for done in (1, 2, 3):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [one.done() for one in waiting].count(True) == done
        process.look()


async def test_what_is_held_back_is_given_back_once_it_was_used(process: Process) -> None:
    process.private = LIMIT // 2 + MIB
    process.look()
    assert process.trimmed == 0
    await process.memory.begin_large("a")
    process.memory.was_used()
    process.memory.end_large("a", 2 * LARGE_BYTES)
    process.look()
    assert process.memory._trimming is not None
    await process.memory._trimming
    process.look()
    assert process.trimmed == 1


@pytest.mark.parametrize("private", [0, LIMIT])
async def test_memory_is_looked_at_while_streams_alone_are_read(
    monkeypatch: pytest.MonkeyPatch, private: int
) -> None:
    """Seldom, but soon where it may fill before the next look; other calls are looked at soon."""
    loop = asyncio.get_running_loop()
    waits: list[float] = []
    monkeypatch.setattr(memory_module, "LOOK_AT_STREAMS_EVERY_S", 1000.0)
    memory = RequestMemory(LIMIT, 8 * MIB, private=lambda: private, trim=lambda: None)

    def next_s() -> float:
        assert memory._timer is not None
        return memory._timer.when() - loop.time()

    memory.reading("stream", CallKind.STREAM)
    waits.append(next_s())
    memory.reading("call", CallKind.SHORT)
    waits.append(next_s())
    memory._look()
    waits.append(next_s())
    memory.readings.end("call", CallKind.SHORT)
    memory._look()
    waits.append(next_s())
    is_soon = [wait_s < 100 for wait_s in waits]
    assert is_soon == [False, True, True, private > 0]
    memory.readings.end("stream", CallKind.STREAM)
    memory.close()


async def test_slow_readers_hold_up_large_responses_and_no_small_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_module, "WAIT_S", 0.1)
    small = {"segment_bytes": 16 << 20}
    async with serving(tmp_path, store=small) as served:
        monkeypatch.setattr(served.server._edge.memory, "_sent_limit_bytes", 1 << 20)
        put = pb.PutRequest(message=pb.Message(topic="t", queue_id=0, body=bytes(3 << 20)))
        await served.messages.Put(put)
        pull = pb.PullRequest(topic="t", queue_id=0)
        served.server._edge.memory.sends(2 << 20, "other")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await served.messages.Pull(pull)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await served.messages.Put(put)
        served.server._edge.memory.sent(2 << 20, "other")
        answer = await served.messages.Pull(pull)
        assert len(answer.messages) == 1


async def test_pages_are_bounded_by_bytes_and_go_on(tmp_path: Path) -> None:
    async with serving(tmp_path, store={"segment_bytes": 16 << 20}) as served:
        body = bytes(3 << 20)
        for _ in range(5):
            await served.messages.Put(
                pb.PutRequest(message=pb.Message(topic="t", queue_id=0, body=body, keys=["k"]))
            )
        found, cursor, pages = 0, b"", 0
        while True:
            page = await served.messages.Query(
                pb.QueryRequest(topic="t", key="k", max_messages=1000, cursor=cursor)
            )
            found, cursor, pages = found + len(page.messages), page.cursor, pages + 1
            if page.complete:
                break
        assert (found, pages) == (5, 3)
        pulled = await served.messages.Pull(
            pb.PullRequest(topic="t", queue_id=0, max_messages=1000, max_bytes=64 << 20)
        )
        assert (len(pulled.messages), pulled.next_offset) == (2, 2)


# --- a real process ------------------------------------------------------------------------


def _hostile() -> dict[str, tuple[str, bytes, int]]:
    """Path, request and number of calls of each attack."""
    body = bytes(3 << 20)
    large = pb.PutBatchRequest(
        messages=[pb.Message(topic="t", queue_id=0, body=body, keys=["k"])] * 20
    )
    refused = pb.PutBatchRequest(
        messages=[pb.Message(topic="t", queue_id=0, body=body)] * 19
        + [pb.Message(topic="no topic", body=body)]
    )
    pull = pb.PullRequest(topic="t", queue_id=0, max_messages=10_000, max_bytes=64 << 20)
    query = pb.QueryRequest(topic="t", key="k", max_messages=1000)
    return {
        "large batches": ("MessageService/PutBatch", large.SerializeToString(), 8),
        "refused batches": ("MessageService/PutBatch", refused.SerializeToString(), 8),
        "empty messages": ("MessageService/PutBatch", b"\x0a\x00" * (30 << 20), 3),
        "a large request for a small method": ("AdminService/GetStatistics", bytes(60 << 20), 8),
        "large pulls": ("MessageService/Pull", pull.SerializeToString(), 20),
        "large queries": ("MessageService/Query", query.SerializeToString(), 20),
    }


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("workers", [1, 2])
async def test_requests_that_were_cut_leave_nothing_in_memory(tmp_path: Path, workers: int) -> None:
    settings = (
        *("server.memory_limit_bytes=134217728", f"server.max_receive_bytes={64 << 20}"),
        f"server.workers={workers}",
    )
    flags = [text for setting in settings for text in ("--set", setting)]
    with ServerProcess(tmp_path, *flags) as server:
        server.wait_for("ready")
        pids = (server.pid, *server.fronts)
        before = private_mib(*pids)
        cut = 0
        async with grpc.aio.insecure_channel(server.target) as channel:
            method = channel.unary_unary("/kvcq.v1.AdminService/GetStatistics", None, None)
            for _ in range(20):
                calls = [method(bytes(60 << 20)) for _ in range(8)]
                for answer in await asyncio.gather(*calls, return_exceptions=True):
                    assert isinstance(answer, grpc.aio.AioRpcError)
                    cut += answer.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                if cut > 15:
                    break
            assert cut > 15, "nothing was tried"
            await until(lambda: private_mib(*pids) < before + 100)


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(600)  # of thousands of large calls
@pytest.mark.parametrize("workers", [1, 2])
async def test_memory_stays_below_1_gib_whatever_clients_send(tmp_path: Path, workers: int) -> None:
    settings = (
        *("store.segment_bytes=268435456", f"server.max_receive_bytes={64 << 20}"),
        f"server.workers={workers}",
    )
    flags = [text for setting in settings for text in ("--set", setting)]
    with ServerProcess(tmp_path, *flags) as server:
        server.wait_for("ready")
        memory = PrivateMemory(server.pid, *server.fronts)
        channels = [
            grpc.aio.insecure_channel(
                server.target,
                options=(
                    ("grpc.max_receive_message_length", -1),
                    ("grpc.max_send_message_length", -1),
                    ("grpc.use_local_subchannel_pool", 1),
                ),
            )
            for _ in range(4)
        ]
        try:
            for what, (path, request, count) in _hostile().items():
                method: Callable[[bytes], Any]
                calls = []
                for index in range(count):
                    method = channels[index % 4].unary_unary(f"/kvcq.v1.{path}", None, None)
                    calls.append(method(request))
                answers = await asyncio.gather(*calls, return_exceptions=True)
                codes = {
                    one.code().name if isinstance(one, grpc.aio.AioRpcError) else type(one).__name__
                    for one in answers
                }
                assert codes <= {"bytes", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"}, what
                assert memory.most_mib < 1024, what
        finally:
            memory.close()
            for channel in channels:
                await channel.close(None)
