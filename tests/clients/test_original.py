"""The same programs against RocketMQ's own proxy and broker: `make clients PEER=rocketmq`.

Where they and this server do not answer alike is in docs/rocketmq-clients.md.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.clients.program import starting
from tests.clients.record import be_pushed_in_order, send_and_be_given
from tests.interop.maven import build
from tests.packaging.environment import Environment
from tests.peers.systems.rocketmq import RocketmqServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.clients.program import Program

pytestmark = [
    pytest.mark.clients,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.environ.get("PEER") != "rocketmq", reason="PEER=rocketmq is not set"),
]
HERE = Path(__file__).parent


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


def python(directory: Path) -> list[str]:
    Environment(directory).install("rocketmq-python-client==5.1.2")
    return [str(directory / "bin" / "python"), "-W", "ignore", str(HERE / "python_program.py")]


def node(directory: Path) -> list[str]:
    npm, program = shutil.which("npm"), shutil.which("node")
    if npm is None or program is None:
        pytest.skip("node is not installed")
    from tests.clients.test_node_client import installed

    return ["env", f"NODE_PATH={installed(directory)}", program, str(HERE / "node_program.cjs")]


def java(directory: Path) -> list[str]:
    shutil.copytree(HERE / "java", directory)
    return ["java", "-cp", build(directory), "JavaProgram"]


@pytest.mark.parametrize("client", [python, node, java])
@pytest.mark.parametrize("steps", [send_and_be_given, be_pushed_in_order])
def test_a_program_does_the_same_with_the_original(
    tmp_path: Path, client: Callable[[Path], list[str]], steps: Callable[[Program], None]
) -> None:
    command = client(tmp_path / "client")
    with original(tmp_path / "original") as endpoint, starting(command, tmp_path) as start:
        program = start(endpoint)
        # A proxy that says it is up may not have heard of the broker's topics yet.
        program.do_when_served("producer", topic="orders")
        steps(program)
