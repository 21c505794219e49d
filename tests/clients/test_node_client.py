"""RocketMQ's own client for Node, as npm has it, in a process of its own, beside the Python one."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.clients.program import Program, Start, starting
from tests.clients.steps import (
    be_a_user,
    go_on_through_a_restart,
    keep_the_order_of_each_group,
    send_receive_and_be_pushed,
)
from tests.support.certificates import Authority
from tests.support.free_port import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

NODE, NPM = shutil.which("node"), shutil.which("npm")
pytestmark = [
    pytest.mark.packages,
    pytest.mark.timeout(900),
    pytest.mark.skipif(NODE is None or NPM is None, reason="node is not installed"),
]
PROGRAM = Path(__file__).with_name("node_program.cjs")
RELEASE = "rocketmq-client-nodejs@1.0.8"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("rocketmq-node"))


def installed(directory: Path) -> Path:
    """Its packages, in that directory."""
    options = ("--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(directory))
    assert NPM is not None
    subprocess.run([NPM, "install", *options, RELEASE], check=True, timeout=300)
    return directory / "node_modules"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki")


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def start(packages: Path, authority: Authority, tmp_path: Path) -> Iterator[Start]:
    """Begins a program with these arguments."""
    assert NODE is not None
    command = (
        "env",
        f"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH={authority.ca}",
        f"NODE_PATH={packages}",
        NODE,
        PROGRAM,
    )
    with starting(command, tmp_path) as start:
        yield start


@pytest.fixture
def program(start: Start, port: int) -> Program:
    return start(f"127.0.0.1:{port}")


def test_a_program_for_rocketmq_sends_receives_and_is_pushed(
    program: Program, tmp_path: Path, port: int
) -> None:
    send_receive_and_be_pushed(program, tmp_path / "store", port)


def test_groups_in_order_are_received_and_pushed_in_their_order(
    program: Program, tmp_path: Path, port: int
) -> None:
    keep_the_order_of_each_group(program, tmp_path / "store", port)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_it_goes_on_through_a_restart_and_nothing_acknowledged_comes_again(
    program: Program, tmp_path: Path, port: int, how: signal.Signals
) -> None:
    go_on_through_a_restart(program, tmp_path / "store", port, how)


def test_users_sign_their_calls_over_tls_and_without(
    start: Start, authority: Authority, tmp_path: Path, port: int
) -> None:
    be_a_user(start, tmp_path / "store", port, authority)
