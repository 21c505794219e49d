"""Fronts as processes: killed under load, ended with their owner, and alone on their port."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from kvcq_client import AsyncClient
from tests.integration.test_server_process import QUEUES, Load, _bodies
from tests.support.server_process import ServerProcess, run_kvcq
from tests.support.until import LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = pytest.mark.integration

WORKERS = ("--workers", "2")
#: What only the process with the store needs; it would make fronts slow to start, and large.
HEAVY = ("rocksdict", "numpy", "_upb", "cryptography")


def _ready(data_dir: Path, *flags: str) -> ServerProcess:
    server = ServerProcess(data_dir, *WORKERS, *flags)
    server.wait_for("ready")
    return server


async def _gone(pids: Iterable[int]) -> None:
    """Returns when none of the processes is there any more."""
    async with asyncio.timeout(LIMIT_S):
        for pid in pids:
            try:
                process = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            ended = asyncio.Event()
            asyncio.get_running_loop().add_reader(process, ended.set)
            await ended.wait()
            asyncio.get_running_loop().remove_reader(process)
            os.close(process)


@pytest.mark.crash
@pytest.mark.slow
def test_no_acknowledged_message_is_missing_or_doubled_when_fronts_die(tmp_path: Path) -> None:
    with _ready(tmp_path) as server:

        async def put_and_kill() -> None:
            load = Load()
            is_enough = False
            went_on = asyncio.Event()

            async def go_on(producer: int) -> None:
                while not is_enough:
                    await load.run(server.target, producer, batches=10)
                    went_on.set()

            async def read_on(producer: int) -> None:
                """A pull gives what is there, or breaks with its front."""
                while not is_enough:
                    acknowledged = load.acknowledged[producer]
                    with suppress(grpc.aio.AioRpcError):
                        found = await _bodies(server.target, producer)
                        assert found == list(range(len(found)))
                        assert len(found) >= acknowledged

            tasks = [asyncio.create_task(go_on(producer)) for producer in range(QUEUES)]
            tasks.append(asyncio.create_task(read_on(0)))
            for _ in range(2):
                [one, other] = server.fronts
                os.kill(one, signal.SIGKILL)
                await _gone([one])
                os.kill(other, signal.SIGKILL)
                await _gone([other])
                before = sum(load.acknowledged)  # what comes now is of others, which listen
                async with asyncio.timeout(60):
                    while len(server.fronts) < 2 or sum(load.acknowledged) < before + 500:
                        went_on.clear()
                        await went_on.wait()
            is_enough = True
            await asyncio.gather(*tasks)
            for producer in range(QUEUES):
                await load.run(server.target, producer, batches=1)  # what was not answered, again
                expected = list(range(load.acknowledged[producer]))
                assert await _bodies(server.target, producer) == expected
            async with AsyncClient(server.target) as client:
                values = await client.statistics()
                assert values["server.fronts.restarts"] == 4

        asyncio.run(put_and_kill())
        server.send(signal.SIGTERM)
        assert server.wait() == 0
    assert any("starting another one" in line for line in server.errors)
    checked = run_kvcq("check", str(tmp_path))
    assert checked.returncode == 0, checked.stderr


def test_fronts_are_small_and_end_when_their_owner_is_killed(tmp_path: Path) -> None:
    with _ready(tmp_path) as server:
        fronts = server.fronts
        assert len(fronts) == 2
        for pid in fronts:
            maps = Path(f"/proc/{pid}/maps").read_text()
            assert [name for name in HEAVY if name in maps] == []
            os.kill(pid, signal.SIGTERM)  # as systemd sends it to all processes of a service
            os.kill(pid, signal.SIGINT)  # as a terminal does
        asyncio.run(_put(server.target))
        server.send(signal.SIGKILL)
        server.wait()
        asyncio.run(_gone(fronts))


def test_sigterm_ends_fronts_and_owner_in_order(tmp_path: Path) -> None:
    with _ready(tmp_path) as server:
        asyncio.run(_put(server.target))
        fronts = server.fronts
        server.send(signal.SIGTERM)
        assert server.wait() == 0
        assert [event["event"] for event in server.events][-2:] == ["draining", "stopped"]
        assert server.errors == []
        asyncio.run(_gone(fronts))
        assert not (tmp_path / "abort").exists(), "the store was closed"


@pytest.mark.parametrize(("flags", "others"), [(WORKERS, [WORKERS, ()]), ((), [WORKERS])])
def test_a_second_server_on_the_port_is_refused(
    tmp_path: Path, flags: tuple[str, ...], others: list[tuple[str, ...]]
) -> None:
    with ServerProcess(tmp_path / "one", *flags) as first:
        first.wait_for("ready")
        port = int(first.target.rpartition(":")[2])
        for other in others:
            with ServerProcess(tmp_path / "two", *other, port=port) as second:
                assert second.wait() == 1
                assert "--port" in "".join(second.errors)
            assert not (tmp_path / "two").exists(), "nothing was made before the port was had"


async def _put(target: str) -> None:
    load = Load()
    await load.run(target, 0, batches=5)
    assert await _bodies(target, 0) == list(range(load.acknowledged[0]))
