"""server/edge/readings.py by a clock that tests set, and calls that are begun and never sent."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING

import pytest

from kvcq_client import AsyncClient, Message, Queue
from server.edge import CallKind
from server.edge import readings as readings_module
from server.edge.call_gate import Places
from server.edge.readings import LATE_S, SLOW_S, UNSENT_S, Readings
from server.edge.request_limits import OPEN_PLACES, PLACES
from server.errors import MemoryFullError, RequestLateError
from server.in_turns import AT_A_TIME
from tests.support.attacks import begun_and_never_sent, close
from tests.support.serving import serving
from tests.support.until import until
from tests.support.users import ADMIN, client_of, guarded

if TYPE_CHECKING:
    from pathlib import Path

SHORT, STREAM, OPEN = CallKind.SHORT, CallKind.STREAM, CallKind.OPEN
TELEMETRY = CallKind.TELEMETRY


class Reader:
    """Readings that begin when a test says so, and the numbers of those that were ended."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.readings = Readings(lambda: self.now_s)
        self.ended: list[tuple[int, type[Exception]]] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self, number: int, kind: CallKind, *, is_first: bool = False) -> None:
        self._tasks.append(asyncio.create_task(self._read(number, kind, is_first)))
        await asyncio.sleep(0)

    async def taken(self) -> list[tuple[int, type[Exception]]]:
        """Those that were ended since the last time."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ended, self.ended = self.ended, []
        return ended

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        assert not self.readings.of_streams
        assert not self.readings.of_others

    async def _read(self, number: int, kind: CallKind, is_first: bool) -> None:
        call = object()
        self.readings.begin(call, kind, is_first=is_first)
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            error = self.readings.why_ended(call)
            if error is not None:
                self.ended.append((number, type(error)))
            raise
        finally:
            self.readings.end(call, kind)


async def test_of_slow_requests_the_newer_half_is_ended_and_those_of_streams_last() -> None:
    reader = Reader()
    for number in range(8):
        await reader.begin(number, SHORT)
    await reader.begin(8, STREAM)
    reader.readings.end_newer_half(streams=True)
    assert await reader.taken() == [], "they may be on their way"
    reader.now_s += SLOW_S
    for expected in ([4, 5, 6, 7], [2, 3], [1], []):
        reader.readings.end_newer_half(streams=False)
        assert await reader.taken() == [(number, MemoryFullError) for number in expected]
    reader.readings.end_newer_half(streams=True)
    assert await reader.taken() == [(8, MemoryFullError)]
    await reader.close()


async def test_thousands_of_streams_are_ended_a_few_in_a_turn_of_the_loop() -> None:
    """Half of them, however often memory is found full meanwhile; others at once."""
    reader = Reader()
    for number in range(2000):
        await reader.begin(number, TELEMETRY)
    reader.now_s += SLOW_S
    in_a_turn: list[int] = []
    while len(reader.ended) < 1000:
        if len(in_a_turn) < 10:  # memory has not been freed yet
            reader.readings.end_newer_half(streams=True)
        before = len(reader.ended)
        await asyncio.sleep(0)
        in_a_turn.append(len(reader.ended) - before)
    assert max(in_a_turn) <= 3 * AT_A_TIME
    assert sorted(number for number, _ in await reader.taken()) == [*range(1000, 2000)]
    await reader.close()


async def test_a_request_that_does_not_come_is_ended_by_its_age_but_for_those_of_streams() -> None:
    reader = Reader()
    for number, kind in enumerate((STREAM, OPEN, SHORT)):
        await reader.begin(number, kind)
    reader.now_s += LATE_S[OPEN]
    await reader.begin(3, OPEN)
    reader.readings.end_late()
    assert await reader.taken() == []
    reader.now_s += 0.1
    reader.readings.end_late()
    assert await reader.taken() == [(1, RequestLateError)]
    reader.now_s += LATE_S[SHORT]
    reader.readings.end_late()
    assert sorted(number for number, _ in await reader.taken()) == [2, 3]
    await reader.close()


async def test_the_one_that_is_waited_for_longest_makes_room() -> None:
    reader = Reader()
    for number in range(3):
        await reader.begin(number, OPEN)
    reader.readings.end_oldest(OPEN)
    reader.readings.end_oldest(OPEN)
    assert [number for number, _ in await reader.taken()] == [0, 1]
    await reader.close()


async def test_of_streams_only_one_of_which_nothing_came_for_long_makes_room() -> None:
    reader = Reader()
    await reader.begin(0, STREAM)
    for number in (1, 2):
        await reader.begin(number, STREAM, is_first=True)
    reader.now_s += UNSENT_S
    await reader.begin(3, STREAM, is_first=True)
    reader.readings.end_oldest(STREAM)
    assert await reader.taken() == [], "it may be on its way"
    reader.now_s += 0.1
    for _ in range(4):
        reader.readings.end_oldest(STREAM)
    assert [number for number, _ in await reader.taken()] == [1, 2]
    await reader.close()


@pytest.mark.parametrize(
    ("method", "workers"), [("PutStream", 1), ("Subscribe", 1), ("Calls", 1), ("PutStream", 2)]
)
async def test_streams_that_are_begun_and_never_sent_shut_nobody_out(
    tmp_path: Path, method: str, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no users are asked for, and the attack is as good as anybody."""
    monkeypatch.setattr(readings_module, "UNSENT_S", 0.3)
    monkeypatch.setitem(PLACES, STREAM, Places(512, 64))
    service = "CallService" if method == "Calls" else "MessageService"
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(serving(tmp_path / "store", workers=workers))
        attack = await begun_and_never_sent(
            store.target, f"/kvcq.v1.{service}/{method}", [], 200, 25
        )
        stack.push_async_callback(close, attack)
        gate = store.server._edge.gate
        await until(lambda: gate.under_way(STREAM) >= 32)
        await asyncio.sleep(0.4)
        async with AsyncClient(store.target) as client:
            async with client.producer() as producer:
                await producer.put(Message("t", b"a", queue_id=0))
            async with await client.consumer([Queue("t", 0)]) as consumer:
                assert (await anext(consumer)).body == b"a"


@pytest.mark.parametrize(
    ("method", "workers"),
    [
        ("Check", 1),
        pytest.param("Watch", 2, marks=pytest.mark.slow),
        pytest.param("Check", 2, marks=pytest.mark.slow),
        pytest.param("Watch", 1, marks=pytest.mark.slow),
    ],
)
async def test_health_calls_that_are_begun_and_never_sent_shut_nobody_out(
    tmp_path: Path,
    method: str,
    workers: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More of them than there are places of any kind; a probe gets through as well, and the log
    says what goes on in a few lines."""
    # Longer than a busy machine takes to begin so many, then as short as the test likes.
    monkeypatch.setitem(readings_module.LATE_S, OPEN, 60.0)
    monkeypatch.setitem(PLACES, CallKind.SHORT, Places(4096, 1000))
    monkeypatch.setitem(PLACES, CallKind.STREAM, Places(512, 512))
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(guarded(tmp_path / "store", {}, workers=workers))
        path = f"/grpc.health.v1.Health/{method}"
        gate = served.server._edge.gate
        attack = await begun_and_never_sent(served.target, path, [], 1500, 25)
        stack.push_async_callback(close, attack)
        await until(lambda: gate.under_way(OPEN) >= OPEN_PLACES.in_all // 2)
        assert gate.under_way(OPEN) <= OPEN_PLACES.in_all
        monkeypatch.setitem(readings_module.LATE_S, OPEN, 0.5)
        async with client_of(served, ADMIN.access_key, ADMIN.secret) as client:
            await client.put(Message("t", b"x", queue_id=0), timeout_s=20)
            async with await client.consumer([Queue("t", 0)]) as consumer:
                assert (await anext(consumer)).body == b"x"
        await served.channel.unary_unary("/grpc.health.v1.Health/Check", None, None)(b"")
        await until(lambda: gate.under_way(OPEN) == 0)
    late = [line for line in caplog.messages if "did not arrive within" in line]
    assert 1 <= len(late) < 20, "something is said, and the log is not filled"


async def test_a_stream_of_requests_is_waited_for_as_long_as_it_lasts(tmp_path: Path) -> None:
    async with guarded(tmp_path / "store", {}) as served:
        edge = served.server._edge
        async with client_of(served, ADMIN.access_key, ADMIN.secret) as client:
            await client.put(Message("t", b"x", queue_id=0))
            edge.memory.readings._now_s = lambda: 1e9
            edge.memory.readings.end_late()
            await client.put(Message("t", b"x", queue_id=0))
