"""What holds of a server holds of one behind fronts: the tests of others, on such a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from tests.server.access import test_tls
from tests.server.app import test_server, test_traces
from tests.server.edge import test_edge
from tests.server.puts import test_stream
from tests.server.reads import test_receives, test_subscription
from tests.server.services import test_call_stream, test_message, test_shared_group
from tests.support import serving
from tests.support.twins import twins_of

if TYPE_CHECKING:
    from tests.support.serving import Served


pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def behind_fronts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(serving.DEFAULTS, "workers", 2)


async def test_they_are_behind_fronts(served: Served) -> None:
    values = (await served.admin.GetStatistics(pb.GetStatisticsRequest())).values
    assert values["server.fronts.running"] == 2


for _module in (
    *(test_server, test_call_stream, test_edge, test_message),
    *(test_stream, test_subscription, test_tls, test_traces),
    *(test_receives, test_shared_group),
):
    globals().update(twins_of(_module))
