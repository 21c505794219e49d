"""What bounds us is as large as what we send, and is measured through the same plug."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kvcq_client.format import put_stream_request
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.transport.grpc_environment import ENVIRONMENT
from tests.peers.cold import ColdMemory
from tests.peers.processes import plain_environment
from tests.peers.systems import bare_answers, bare_stack, bare_store
from tests.peers.systems.bare_stack import BareStackClient
from tests.peers.turns import Found, Turn
from tests.peers.values import BATCH, BODY_BYTES, Durability
from tests.peers.works import WORKS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.peers.systems.protocol import System


@pytest.mark.integration
@pytest.mark.parametrize(
    "system",
    [bare_stack.SYSTEM, bare_stack.OVER_STORE, bare_store.SYSTEM],
    ids=lambda system: str(system.name),
)
def test_limit_is_measured_for_all_works_that_it_bounds(tmp_path: Path, system: System) -> None:
    found = Found()
    with ColdMemory(limit_bytes=0) as cold:
        Turn(system, 0, tmp_path / "turn", found, cold, 0.0, lambda _: None).run()
    assert not found.failures
    assert not found.not_offered
    done = {(one.work, one.durability, one.memory) for one in found.samples}
    assert done == {
        (work.name, durability, work.memory)
        for durability, works in WORKS.items()
        for work in works
        if work.method in system.limits
    }
    # Of what a busy machine stores in 50 ms there may be too little for a pull.
    puts = [sample for sample in found.samples if sample.work.startswith("put")]
    assert all(sample.timed["count"] > 0 for sample in puts)


def test_requests_are_as_long_as_ours() -> None:
    client = BareStackClient("nowhere", Durability.BEFORE_FSYNC)
    message = ("cold", bytes(BODY_BYTES), 0, "", (), (), None, 0, None, "")
    request = pb.PutRequest(message=pb.Message(topic="one", body=message[1], queue_id=0))
    ours = pb.Call(id=1000, method="Put", request=request.SerializeToString(), timeout_ms=30_000)
    assert len(client._put) == pytest.approx(ours.ByteSize(), rel=0.03)
    batch = put_stream_request(1000, [message] * BATCH, "p" * 32, 1000)
    assert len(client._batch) == pytest.approx(len(batch), rel=0.03)
    client.close()


def test_requests_of_many_calls_are_stored_together(tmp_path: Path) -> None:
    behind = bare_answers.Store(tmp_path / "store")
    body = os.urandom(BODY_BYTES)
    behind.put(body, 3)
    assert behind.read(1, 2, 0).count(body) == 2
    behind._store.close()


def test_grpc_waits_for_sockets_as_our_client_tells_it() -> None:
    look = """
import os, sys
class Look:
    def find_spec(self, name, *_):
        if name == "grpc":
            print(os.environ.get("GRPC_EXPERIMENTS"))
sys.meta_path.insert(0, Look())
import tests.peers.systems.bare_stack
"""
    found = subprocess.run(
        [sys.executable, "-c", look],
        env=plain_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == ENVIRONMENT.get("GRPC_EXPERIMENTS", "None")
