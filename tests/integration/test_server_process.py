"""The server as a process: draining on SIGTERM, being killed under load, being started twice."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import grpc
import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import kvcq_pb2_grpc
from kvcq_client.transport import from_rpc, is_retried
from tests.support.child_process import child_process
from tests.support.server_process import ROOT, ServerProcess, run_kvcq

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.integration

QUEUES = 4


class Load:
    """Puts batches from several tasks until the server is gone, and notes what was acknowledged.

    Every task is an idempotent producer on a queue of its own: bodies are its sequence numbers.
    """

    def __init__(self) -> None:
        self.acknowledged = [0] * QUEUES
        self.unanswered = [0] * QUEUES
        self.enough = asyncio.Event()

    async def run(self, target: str, producer: int, *, batches: int | None = None) -> None:
        """From the first message that is not acknowledged on; the same batches again if needed."""
        async with grpc.aio.insecure_channel(target) as channel:
            stub = kvcq_pb2_grpc.MessageServiceStub(channel)
            while batches is None or batches > 0:
                first = self.acknowledged[producer]
                count = self.unanswered[producer] or 1 + first % 7
                self.unanswered[producer] = count
                messages = [
                    pb.Message(topic="load", queue_id=producer, body=b"%d" % number)
                    for number in range(first, first + count)
                ]
                sequence = pb.ProducerSequence(producer_id=f"p{producer}", sequence=first)
                request = pb.PutBatchRequest(messages=messages, producer=sequence)
                try:
                    await stub.PutBatch(request)
                except grpc.aio.AioRpcError as error:
                    if not is_retried(from_rpc(error)):
                        raise
                    return
                self.acknowledged[producer] += count
                self.unanswered[producer] = 0
                if sum(self.acknowledged) > 2000:
                    self.enough.set()
                if batches is not None:
                    batches -= 1


async def _load_until(server: ServerProcess, end: Callable[[], None]) -> Load:
    load = Load()
    tasks = [asyncio.create_task(load.run(server.target, producer)) for producer in range(QUEUES)]
    await asyncio.wait_for(load.enough.wait(), 60)
    end()
    await asyncio.gather(*tasks)
    return load


async def _bodies(target: str, queue_id: int) -> list[int]:
    async with grpc.aio.insecure_channel(target) as channel:
        stub = kvcq_pb2_grpc.MessageServiceStub(channel)
        found: list[int] = []
        offset = 0
        while True:
            pulled = await stub.Pull(
                pb.PullRequest(topic="load", queue_id=queue_id, offset=offset, max_messages=1000)
            )
            found += [int(message.body) for message in pulled.messages]
            offset = pulled.next_offset
            if offset == pulled.max_offset:
                return found


def _ready(data_dir: Path, *flags: str) -> ServerProcess:
    server = ServerProcess(data_dir, *flags)
    server.wait_for("ready")
    return server


@pytest.mark.crash
@pytest.mark.parametrize("flush", ["sync", pytest.param("async", marks=pytest.mark.slow)])
def test_p1_no_acknowledged_message_is_missing_after_kill_9(tmp_path: Path, flush: str) -> None:
    with _ready(tmp_path, "--flush", flush) as server:
        load = asyncio.run(_load_until(server, lambda: server.send(signal.SIGKILL)))
        assert server.wait() == -signal.SIGKILL
    checked = run_kvcq("check", str(tmp_path))
    assert checked.returncode == 0, checked.stderr
    with _ready(tmp_path, "--flush", flush) as server:

        async def send_again_and_read() -> None:
            before = list(load.acknowledged)
            for producer in range(QUEUES):
                stored = await _bodies(server.target, producer)
                assert stored[: before[producer]] == list(range(before[producer]))
                await load.run(server.target, producer, batches=3)
                expected = list(range(load.acknowledged[producer]))
                assert await _bodies(server.target, producer) == expected

        asyncio.run(send_again_and_read())
        server.send(signal.SIGKILL)
        server.wait()
    checked = run_kvcq("check", str(tmp_path))
    assert checked.returncode == 0, checked.stderr


def test_sigterm_finishes_calls_and_closes_the_store(tmp_path: Path) -> None:
    with _ready(tmp_path) as server:
        load = asyncio.run(_load_until(server, lambda: server.send(signal.SIGTERM)))
        assert server.wait() == 0
        assert [event["event"] for event in server.events][-2:] == ["draining", "stopped"]
        assert not (tmp_path / "abort").exists(), "the store was closed"
    with _ready(tmp_path) as server:
        for producer in range(QUEUES):
            stored = asyncio.run(_bodies(server.target, producer))
            assert stored[: load.acknowledged[producer]] == list(range(load.acknowledged[producer]))


@pytest.mark.parametrize("signals", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_worker_that_hangs_does_not_keep_the_process_from_ending(
    tmp_path: Path, signals: int
) -> None:
    grace = ("--set", f"server.drain_grace_s={0.1 if signals == 1 else 1000}")
    with ServerProcess(tmp_path, *grace, module="tests.support.stuck_server") as server:
        server.wait_for("ready")

        async def put_and_hang() -> None:
            async with grpc.aio.insecure_channel(server.target) as channel:
                messages = kvcq_pb2_grpc.MessageServiceStub(channel)
                await messages.Put(pb.PutRequest(message=pb.Message(topic="load", body=b"7")))
                hanging = kvcq_pb2_grpc.TopicServiceStub(channel).ListTopics(pb.ListTopicsRequest())
                # A call is in a worker before a later one is answered.
                await messages.Pull(pb.PullRequest(topic="load", queue_id=0))
                server.send(signal.SIGTERM)
                await asyncio.to_thread(server.wait_for, "draining")
                if signals == 2:
                    server.send(signal.SIGTERM)
                with pytest.raises(grpc.aio.AioRpcError):
                    await hanging

        asyncio.run(put_and_hang())
        assert server.wait() == 1
        [last] = [line for line in server.errors if "it still runs" in line]
        assert last.rstrip().endswith("_0"), "it says which thread hangs"
        assert server.events[-1]["event"] == "stopped", "the store was closed all the same"
    assert run_kvcq("check", str(tmp_path)).returncode == 0


def test_a_second_server_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with _ready(tmp_path) as first:
        with ServerProcess(tmp_path) as second:
            assert second.wait() == 1
            assert "stop the other server" in "".join(second.errors)
        assert asyncio.run(_is_serving(first.target))


def test_a_second_server_on_the_same_port_is_refused(tmp_path: Path) -> None:
    with _ready(tmp_path / "one") as first:
        port = int(first.target.rpartition(":")[2])
        with ServerProcess(tmp_path / "two", port=port) as second:
            assert second.wait() == 1
            assert "--port" in "".join(second.errors)
        assert not (tmp_path / "two").exists(), "nothing was made before the port was had"


def test_a_person_is_told_what_to_type_next(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "server", "serve", "--port", "0", "--data", str(tmp_path)]
    command += ["--set", "store.segment_bytes=4194304"]
    with child_process(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        told = []
        for line in process.stderr:
            told.append(line)
            if line.startswith("Ctrl-C"):
                process.send_signal(signal.SIGINT)
        assert process.wait() == 0
    text = "".join(told)
    for expected in ("kvcq is listening on 127.0.0.1:", "kvcq put --server", "the store is closed"):
        assert expected in text


async def _is_serving(target: str) -> bool:
    async with grpc.aio.insecure_channel(target) as channel:
        stub = kvcq_pb2_grpc.AdminServiceStub(channel)
        answer = await stub.GetStatistics(pb.GetStatisticsRequest())
        return bool(answer.values["server.ready"])


def test_a_log_in_json_is_one_object_a_line(tmp_path: Path) -> None:
    flags = ("--set", "server.log_format=json", "--set", "server.metrics_port=0")
    with ServerProcess(tmp_path / "store", *flags) as server:
        server.wait_for("ready")
        server.send(signal.SIGTERM)
        assert server.wait() == 0
        lines = [json.loads(line) for line in server.errors]
    [site] = [line for line in lines if line["message"].startswith("metrics: http://127.0.0.1:")]
    assert site["level"] == "INFO"
    assert site["logger"] == "server.http.sites"


def test_a_port_of_metrics_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        flag = f"server.metrics_port={other.getsockname()[1]}"
        with ServerProcess(tmp_path / "store", "--set", flag) as server:
            assert server.wait() != 0
            assert "server.metrics_host=" in "".join(server.errors)
