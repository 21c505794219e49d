"""RocketMQ's own clients, unmodified, from their registries, each in a process of its own: by
itself, through a restart of the server, and through one that is killed in the middle."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.clients import steps
from tests.clients.official import GO, GO_OLD, JAVA, NODE, PYTHON, RUST, Official
from tests.clients.program import Program, Start, starting
from tests.support.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.clients.official import Installed

pytestmark = pytest.mark.timeout(1800)

#: Those of `make test-packages`, and those that need tools of their own.
QUICK, OTHERS = (PYTHON, NODE), (JAVA, GO, RUST)
CLIENTS = [
    *(pytest.param(each, marks=pytest.mark.packages, id=each.name) for each in QUICK),
    *(pytest.param(each, marks=pytest.mark.clients, id=each.name) for each in OTHERS),
]
#: As far from the newest as the registries go.
RELEASES = [
    PYTHON.at("5.1.1"),
    # It reads neither keys nor properties of a message. Its push consumer needs settings with a
    # collector of metrics, which neither this server nor RocketMQ's proxy has unless told.
    PYTHON.at("5.0.9", "keys", "push"),
    JAVA.at("5.1.0"),
    JAVA.at("5.0.8"),
    GO.at("5.1.4"),
]
#: Older ones, which always use TLS.
ONLY_TLS = [JAVA.at("5.0.4"), GO_OLD.at("5.1.2"), GO_OLD.at("5.1.1-rc1")]


@pytest.fixture(scope="module", params=CLIENTS)
def official(request: pytest.FixtureRequest) -> Official:
    client: Official = request.param
    return client


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki")


@pytest.fixture
def start(
    official: Official, installed: Installed, authority: Authority, tmp_path: Path
) -> Iterator[Start]:
    """Begins a program with these arguments."""
    variables = (
        f"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH={authority.ca}",  # of Python and Node
        f"user.home={tmp_path}",  # Go's client writes logs below what Java would call the home
    )
    with starting(("env", *variables, *installed(official)), tmp_path, official.lacks) as start:
        yield start


@pytest.fixture
def program(start: Start, port: int) -> Program:
    return start(f"127.0.0.1:{port}")


def only_with(official: Official, needed: str) -> None:
    if needed in official.lacks:
        pytest.skip(f"the client for {official.name} has no {needed}")


def test_it_sends_receives_and_acknowledges(program: Program, tmp_path: Path, port: int) -> None:
    steps.send_and_receive(program, tmp_path / "store", port)


def test_it_is_pushed_messages_again_what_failed_and_reads_dead_letters(
    official: Official, program: Program, tmp_path: Path, port: int
) -> None:
    only_with(official, "push")
    steps.be_pushed(program, tmp_path / "store", port)


def test_a_delayed_message_comes_at_its_time(program: Program, tmp_path: Path, port: int) -> None:
    steps.deliver_later(program, tmp_path / "store", port)


def test_a_recalled_message_never_comes(
    official: Official, program: Program, tmp_path: Path, port: int
) -> None:
    only_with(official, "recall")
    steps.recall(program, tmp_path / "store", port)


def test_transactions_have_one_outcome_also_when_their_producer_was_killed(
    start: Start, tmp_path: Path, port: int
) -> None:
    steps.decide_transactions(start, tmp_path / "store", port)


def test_what_has_the_highest_priority_comes_first(
    official: Official, program: Program, tmp_path: Path, port: int
) -> None:
    only_with(official, "priority")
    steps.receive_the_highest_priority_first(program, tmp_path / "store", port)


def test_groups_in_order_are_received_and_pushed_in_their_order(
    program: Program, tmp_path: Path, port: int
) -> None:
    steps.keep_the_order_of_each_group(program, tmp_path / "store", port)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_it_goes_on_through_a_restart_and_nothing_acknowledged_comes_again(
    program: Program, tmp_path: Path, port: int, how: signal.Signals
) -> None:
    steps.go_on_through_a_restart(program, tmp_path / "store", port, how)


def test_users_sign_their_calls_over_tls_and_without(
    start: Start, authority: Authority, tmp_path: Path, port: int
) -> None:
    steps.be_a_user(start, tmp_path / "store", port, authority)


@pytest.mark.clients
def test_what_one_client_sends_each_other_one_receives(
    installed: Installed, tmp_path: Path, port: int
) -> None:
    with ExitStack() as all_of_them:
        programs = []
        for each in (*QUICK, *OTHERS):
            command = ("env", f"user.home={tmp_path}", *installed(each))
            start = all_of_them.enter_context(starting(command, tmp_path, each.lacks))
            programs.append(start(f"127.0.0.1:{port}"))
        steps.exchange(programs, tmp_path / "store", port)


@pytest.mark.clients
@pytest.mark.parametrize("does", [steps.send_and_receive, steps.be_pushed])
@pytest.mark.parametrize("release", RELEASES, ids=lambda each: f"{each.name}-{each.release}")
def test_other_releases_do_the_same(
    installed: Installed,
    release: Official,
    does: Callable[[Program, Path, int], None],
    tmp_path: Path,
    port: int,
) -> None:
    if does is steps.be_pushed:
        only_with(release, "push")
    command = ("env", f"user.home={tmp_path}", *installed(release))
    with starting(command, tmp_path, release.lacks) as start:
        does(start(f"127.0.0.1:{port}"), tmp_path / "store", port)


@pytest.mark.clients
@pytest.mark.parametrize("release", ONLY_TLS, ids=lambda each: f"{each.name}-{each.release}")
def test_releases_that_always_use_tls_send_receive_and_acknowledge(
    installed: Installed, release: Official, authority: Authority, tmp_path: Path, port: int
) -> None:
    secured, flags = steps.with_a_tls_port(authority)
    command = ("env", f"user.home={tmp_path}", *installed(release))
    with starting(command, tmp_path, release.lacks) as start:
        program = start(f"127.0.0.1:{secured}", "", "", "tls")
        steps.send_and_receive(program, tmp_path / "store", port, *flags)
