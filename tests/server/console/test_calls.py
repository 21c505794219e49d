"""Calls of pages take places, are counted, and wait for each other as calls over gRPC do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.console.calls import ApiCalls
from server.console.viewers import Viewer
from server.edge import CallKind
from server.edge.request_limits import PLACES
from server.errors import TooManyCallsError
from store.errors import UnknownTopicError

if TYPE_CHECKING:
    from tests.support.serving import Served

ANN = Viewer("ann", may_administer=True)


def _calls(served: Served) -> ApiCalls:
    server = served.server
    return ApiCalls(server._edge.methods, server._edge.gate, server._metrics, lambda _: None)


async def test_a_call_is_answered_and_counted(served: Served) -> None:
    calls = _calls(served)
    found = await calls.ask(ANN, "ListTopics", pb.ListTopicsRequest(), pb.ListTopicsResponse)
    assert list(found.topics) == []
    assert served.server._metrics.statistics()["server.calls.ListTopics"] == 1
    assert calls.offers("ListTopics")
    assert not calls.offers("Nothing")


async def test_a_refusal_is_raised_and_its_place_given_back(served: Served) -> None:
    request = pb.DescribeTopicRequest(name="none")
    with pytest.raises(UnknownTopicError):
        await _calls(served).ask(ANN, "DescribeTopic", request, pb.DescribeTopicResponse)
    assert served.server._edge.gate.under_way(CallKind.SHORT) == 0


async def test_a_viewer_has_no_more_places_than_a_connection(served: Served) -> None:
    gate, calls = served.server._edge.gate, _calls(served)
    for _ in range(PLACES[CallKind.SHORT].of_peer):
        gate.enter(CallKind.SHORT, "console:ann")
    with pytest.raises(TooManyCallsError):
        await calls.ask(ANN, "ListTopics", pb.ListTopicsRequest(), pb.ListTopicsResponse)
