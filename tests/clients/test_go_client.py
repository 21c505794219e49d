"""RocketMQ's own client for Go, as the module proxy has it, in a process of its own."""

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

GO = shutil.which("go")
pytestmark = [
    pytest.mark.clients,
    pytest.mark.timeout(900),
    pytest.mark.skipif(GO is None, reason="go is not installed"),
]
PROJECT = Path(__file__).with_name("go")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("rocketmq-go")
    program = directory / "program"
    assert GO is not None
    subprocess.run([GO, "build", "-o", program, "."], cwd=PROJECT, check=True, timeout=900)
    return program


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def start(built: Path, tmp_path: Path) -> Iterator[Start]:
    """Begins a program with these arguments."""
    # It writes logs below what Java would call the home.
    with starting(("env", f"user.home={tmp_path}", built), tmp_path) as start:
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
    start: Start, tmp_path: Path, port: int
) -> None:
    be_a_user(start, tmp_path / "store", port, Authority(tmp_path / "pki"))
