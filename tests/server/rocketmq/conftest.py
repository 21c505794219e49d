"""A client of RocketMQ 5's, as the tests of this folder have it unless they make another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.server.rocketmq.client import Client

if TYPE_CHECKING:
    from tests.support.serving import Served


@pytest.fixture
def client(served: Served) -> Client:
    return Client(served.channel)
