"""RocketMQ's own Python client, as PyPI has it, in a process of its own: through a restart of the
server, and through one that is killed in the middle."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kvcq_client import Client, Message
from tests.clients.program import Program, Start, starting
from tests.clients.steps import (
    be_a_user,
    deliver_later,
    go_on_through_a_restart,
    keep_the_order_of_each_group,
    served,
)
from tests.packaging.environment import Environment
from tests.support.certificates import Authority
from tests.support.free_port import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.packages, pytest.mark.timeout(900)]

PROGRAM = Path(__file__).with_name("python_program.py")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("rocketmq-python")
    Environment(directory).install("rocketmq-python-client==5.1.2")
    return directory / "bin" / "python"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki")


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def start(python: Path, authority: Authority, tmp_path: Path) -> Iterator[Start]:
    """Begins a program with these arguments."""
    command = (
        "env",
        f"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH={authority.ca}",
        python,
        "-W",
        "ignore",
        PROGRAM,
    )
    with starting(command, tmp_path) as start:
        yield start


@pytest.fixture
def program(start: Start, port: int) -> Program:
    return start(f"127.0.0.1:{port}")


def test_a_delayed_message_comes_at_its_time(program: Program, tmp_path: Path, port: int) -> None:
    deliver_later(program, tmp_path / "store", port)


def test_a_program_for_rocketmq_sends_and_receives(
    program: Program, tmp_path: Path, port: int
) -> None:
    with served(tmp_path / "store", port):
        program.do("producer", topic="orders")
        program.send("orders", "plain", tag="paid", keys="order-1", properties={"colour": "blue"})
        program.send("orders", "f1", "f2", "f3", message_group="customer-7")
        program.do("simple", group="workers", topic="orders")
        got = {one["body"]: one for one in program.receive_all(4)}
        plain = got["plain"]
        assert (plain["tag"], plain["keys"], plain["attempt"]) == ("paid", ["order-1"], 1)
        assert plain["properties"] == {"colour": "blue"}
        assert [one["body"] for one in got.values() if one["group"]] == ["f1", "f2", "f3"]
        program.do("change", id=plain["id"], invisible_s=1)
        program.do("ack", ids=[one["id"] for one in got.values() if one["group"]])
        (again,) = program.receive_all(1)
        assert (again["id"], again["attempt"]) == (plain["id"], 2)
        program.do("ack", ids=[again["id"]])
        assert program.do("receive")["messages"] == []
        refused = program.try_("send", topic="orders", bodies=["x"], delivery_timestamp=1 << 31)
        assert "more than 40 days ahead" in refused["error"]
        with Client(f"127.0.0.1:{port}") as ours:
            ours.put(Message("orders", b"from kvcq", tag="t", keys=("k",)))
            (theirs,) = program.receive_all(1)
            assert (theirs["body"], theirs["tag"], theirs["keys"]) == ("from kvcq", "t", ["k"])
            (found,) = ours.query("orders", plain["id"]).messages
            assert (found.body, found.tag) == (b"plain", "paid")
        program.do("stop")


def test_a_push_consumer_takes_each_message_and_again_what_failed(
    program: Program, tmp_path: Path, port: int
) -> None:
    with served(tmp_path / "store", port):
        program.do("producer", topic="orders")
        program.do("push", group="pushed", topic="orders")
        program.send("orders", "fail-once", "a", "b")
        seen = program.until_pushed("fail-once", "a", "b")
        attempts = [
            one["pushed"]["attempt"] for one in seen if one["pushed"]["body"] == "fail-once"
        ]
        assert attempts == [1, 2]
        program.do("stop")


def test_transactions_have_one_outcome_also_when_their_producer_was_killed(
    start: Start, tmp_path: Path, port: int
) -> None:
    """Another producer of the topic is asked, six seconds after the message at the earliest."""
    target = f"127.0.0.1:{port}"
    with served(tmp_path / "store", port):
        first = start(target)
        first.do("transactions", topic="orders")
        done = first.do("half", topic="orders", body="committed", resolution="commit")
        first.do("half", topic="orders", body="dropped", resolution="rollback")
        left = first.do("half", topic="orders", body="orphan")
        first.do("half", topic="orders", body="bad orphan")
        first.kill()
        second = start(target)
        second.do("transactions", topic="orders")
        asked = {second.pushed.get(timeout=60)["pushed"]["checked"] for _ in range(2)}
        assert asked == {"orphan", "bad orphan"}
        second.do("simple", group="workers", topic="orders")
        got = {one["body"]: one["id"] for one in second.receive_all(2)}
        assert got == {"committed": done["id"], "orphan": left["id"]}
        with Client(target) as ours:
            while ours.open_transactions():
                pass
        assert second.do("receive")["messages"] == []
        second.do("stop")


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
