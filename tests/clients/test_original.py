"""The same programs against RocketMQ's own proxy and broker: `make clients PEER=rocketmq`.

Where they and this server do not answer alike is in docs/rocketmq-clients.md.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.clients.official import JAVA, NODE, PYTHON, Official
from tests.clients.program import starting
from tests.clients.record import be_pushed_in_order, send_and_be_given
from tests.peers.systems.rocketmq import RocketmqServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.clients.program import Program

pytestmark = [
    pytest.mark.clients,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.environ.get("PEER") != "rocketmq", reason="PEER=rocketmq is not set"),
]


@contextmanager
def original(directory: Path) -> Iterator[str]:
    """The endpoint of its proxy."""
    directory.mkdir()
    server = RocketmqServer(
        "default",
        directory,
        durable=False,
        proxy=True,
        topics={"orders": "MIXED", "sequence": "FIFO"},
        groups={
            "in-order": {"consumeMessageOrderly": True, "retryMaxTimes": 1},
            "workers": {},
            "pushed": {},
        },
    )
    try:
        server.start()
        yield server.address
    finally:
        server.stop()


@pytest.mark.parametrize("client", [PYTHON, NODE, JAVA], ids=lambda each: each.name)
@pytest.mark.parametrize("steps", [send_and_be_given, be_pushed_in_order])
def test_a_program_does_the_same_with_the_original(
    tmp_path: Path, client: Official, steps: Callable[[Program], None]
) -> None:
    command = client.command(tmp_path / "client")
    with original(tmp_path / "original") as endpoint, starting(command, tmp_path) as start:
        program = start(endpoint)
        # A proxy that says it is up may not have heard of the broker's topics yet.
        program.do_when_served("producer", topic="orders")
        steps(program)
