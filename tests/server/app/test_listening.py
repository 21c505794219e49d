"""server/app/listening.py: what gRPC is told."""

from __future__ import annotations

import asyncio
import threading
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import kvcq_pb2_grpc
from kvcq_client.transport.connection import _OPTIONS
from server.app.listening import rpc_options
from server.config import ServerConfig
from tests.support.until import until

if TYPE_CHECKING:
    from tests.support.serving import Served

STANDS_STILL_S = 32.0


def test_grpc_knows_every_option_that_it_is_given(tmp_path: Path) -> None:
    """It leaves out the others without a word, such as one whose name is that of its constant."""
    library = import_module("grpc._cython.cygrpc").__file__
    assert library is not None
    names = Path(library).read_bytes()
    given = [*rpc_options(ServerConfig(data_dir=tmp_path)), *_OPTIONS]
    assert [name for name, _ in given if name.encode() + b"\0" not in names] == []


@pytest.mark.slow
async def test_calls_wait_for_a_loop_that_stands_still_for_long(served: Served) -> None:
    request = pb.PutRequest(message=pb.Message(topic="T", queue_id=0, body=b"x"))
    connected, begun = threading.Event(), threading.Event()

    def puts() -> list[int]:
        with grpc.insecure_channel(served.target) as channel:
            stub = kvcq_pb2_grpc.MessageServiceStub(channel)
            stub.Put(request)
            connected.set()
            assert begun.wait(60)
            calls = [stub.Put.future(request) for _ in range(20)]
            return [call.result().placed.queue_offset for call in calls]

    putting = asyncio.create_task(asyncio.to_thread(puts))
    await until(connected.is_set)
    begun.set()
    threading.Event().wait(STANDS_STILL_S)
    assert sorted(await putting) == list(range(1, 21))
