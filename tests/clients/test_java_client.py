"""RocketMQ's own client for Java, as Maven Central has it, in a process of its own."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.clients.program import Program
from tests.clients.steps import (
    go_on_through_a_restart,
    keep_the_order_of_each_group,
    send_receive_and_be_pushed,
)
from tests.interop.maven import build
from tests.support.free_port import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]
PROJECT = Path(__file__).with_name("java")


@pytest.fixture(scope="module")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("rocketmq-java") / "java"
    shutil.copytree(PROJECT, directory)
    return build(directory)


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def program(class_path: str, tmp_path: Path, port: int) -> Iterator[Program]:
    command = ("java", "-cp", class_path, "JavaProgram", f"127.0.0.1:{port}")
    started = Program(command, tmp_path)
    yield started
    started.close()


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
