"""The limits put through as many bytes as ours."""

from __future__ import annotations

import pytest

from kvcq_client.format import put_stream_request
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from tests.benchmarks.systems.bare import BareStackClient
from tests.benchmarks.timing import BATCH, BODY_BYTES


def test_requests_are_as_long_as_ours() -> None:
    client = BareStackClient("nowhere", durable=False)
    message = ("cold", bytes(BODY_BYTES), 0, "", (), (), None, 0, None, "")
    request = pb.PutRequest(message=pb.Message(topic="one", body=message[1], queue_id=0))
    ours = pb.Call(id=1000, method="Put", request=request.SerializeToString(), timeout_ms=30_000)
    assert len(client.put) == pytest.approx(ours.ByteSize(), rel=0.03)
    batch = put_stream_request(1000, [message] * BATCH, "p" * 32, 1000)
    assert len(client.batch) == pytest.approx(len(batch), rel=0.03)
    client.close()
