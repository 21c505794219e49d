"""Fields that are written by hand, against protobuf."""

from __future__ import annotations

import pytest

from kvcq_client.format import length_delimited, varint
from kvcq_client.pb.v1 import kvcq_pb2 as pb


@pytest.mark.parametrize("value", [1, 127, 128, 300, 1 << 35, (1 << 63) - 1])
def test_varint_is_that_of_protobuf(value: int) -> None:
    assert varint(value) == pb.Placed(queue_offset=value).SerializeToString()[1:]


def test_a_field_may_follow_an_encoded_message() -> None:
    head = pb.CallResult(id=7).SerializeToString()
    field = length_delimited(pb.CallResult, "response") + varint(300) + b"x" * 300
    assert pb.CallResult.FromString(head + field) == pb.CallResult(id=7, response=b"x" * 300)
