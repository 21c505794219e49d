"""With gRPC's public calls only, as with a release that was not measured: the tests of others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from server import receiving
from tests.server.edge import test_edge
from tests.server.puts import test_stream
from tests.server.reads import test_long_poll, test_subscription
from tests.server.services import test_call_stream, test_message
from tests.support.twins import twins_of

if TYPE_CHECKING:
    from tests.support.serving import Served


pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def public_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "cygrpc", None)


async def test_answers_are_sent_and_requests_read_by_themselves(served: Served) -> None:
    async with test_call_stream.streaming(served) as stream:
        for number in range(3):
            await stream.send((number, "Put", test_call_stream.put(b"x")))
            assert (await stream.result()).id == number


for _module in (
    *(test_edge, test_stream, test_long_poll),
    *(test_subscription, test_call_stream, test_message),
):
    globals().update(twins_of(_module))
