"""server/wire/fields.py: what a field may be, and what it is when it is left open."""

from __future__ import annotations

from typing import cast

import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.wire import fields
from store.errors import InvalidArgumentError


def test_zero_asks_for_the_default() -> None:
    assert fields.bounded("n", 0, 32, 100) == 32
    assert fields.bounded("n", 100, 32, 100) == 100


@pytest.mark.parametrize("value", [-1, 101])
def test_a_number_outside_its_limits_is_refused_by_name(value: int) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        fields.bounded("max_messages", value, 32, 100)
    assert refused.value.field == "max_messages"


def test_unknown_enum_values_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="form"):
        fields.form_of(cast("pb.RecordForm", 77))
    with pytest.raises(InvalidArgumentError, match="boundary"):
        fields.boundary_of(cast("pb.TimeBoundary", 77))


def test_the_queue_that_is_wrong_is_named() -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        fields.queues_of([pb.Queue(topic="a"), pb.Queue(topic="b", queue_id=-1)])
    assert refused.value.field == "queues[1].queue_id"
