"""The server as a process in odd surroundings: closed streams, a log nobody reads, few files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import kvcq_pb2_grpc
from tests.support.child_process import child_process
from tests.support.free_port import free_port
from tests.support.server_process import ROOT, TIMEOUT_S, run_kvcq

pytestmark = pytest.mark.integration


def _command(root: Path, port: int) -> list[str]:
    return [
        *(sys.executable, "-m", "server", "serve", "--port", str(port), "--data", str(root)),
        *("--set", "store.segment_bytes=4194304"),
    ]


async def _put(port: int, body: bytes) -> None:
    """Through a channel that waits until the server is ready."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = kvcq_pb2_grpc.MessageServiceStub(channel)
        request = pb.PutRequest(message=pb.Message(topic="T", body=body))
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                try:
                    await stub.Put(request, wait_for_ready=True)
                    return
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.UNAVAILABLE:
                        raise


def _end(process: subprocess.Popen[bytes], number: signal.Signals) -> int:
    process.send_signal(number)
    return process.wait(TIMEOUT_S)


def test_closed_standard_streams_are_never_taken_by_a_file_of_the_store(tmp_path: Path) -> None:
    port = free_port()
    # The shell closes what Popen cannot; `exec` makes the server this very process.
    with child_process(
        ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *_command(tmp_path, port)], cwd=ROOT
    ) as process:
        asyncio.run(_put(port, b"hello"))
        opened = Path(f"/proc/{process.pid}/fd")
        lead_to = {(opened / str(number)).readlink() for number in range(3)}
        assert lead_to == {Path(os.devnull)}
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        [files] = [line for line in limits.splitlines() if line.startswith("Max open files")]
        assert int(files.split()[3]) == resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        assert _end(process, signal.SIGTERM) == 0
    assert not (tmp_path / "abort").exists()
    assert run_kvcq("check", str(tmp_path)).returncode == 0


def test_new_directories_and_files_are_not_for_others_to_read(tmp_path: Path) -> None:
    root = tmp_path / "store"
    port = free_port()
    with child_process(_command(root, port), cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        asyncio.run(_put(port, b"hello"))
        assert _end(process, signal.SIGTERM) == 0
    for path in (root, *root.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o750 if path.is_dir() else 0o640), (path, oct(mode))


@pytest.mark.slow
def test_a_log_that_nobody_reads_stops_neither_calls_nor_the_end(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    os.set_blocking(writer, True)
    port = free_port()
    try:
        with child_process(
            _command(tmp_path, port), cwd=ROOT, stdout=writer, stderr=writer
        ) as process:
            asyncio.run(_put(port, b"hello"))
            assert _end(process, signal.SIGTERM) == 0
    finally:
        os.close(writer)
        os.close(reader)
    assert not (tmp_path / "abort").exists()
