"""TLS and users on the command line: a real server process, real commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.certificates import Authority
from tests.support.command_line import run_here
from tests.support.server_process import ServerProcess, run_kvcq

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def target(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    cert, key = authority.issue()
    flags = ("--tls-cert", str(cert), "--tls-key", str(key))
    with ServerProcess(tmp_path_factory.mktemp("tls") / "store", *flags) as server:
        server.wait_for("ready")
        yield server.target


def test_a_command_goes_over_tls(target: str, authority: Authority) -> None:
    tls = ("--server", target, "--tls-ca", str(authority.ca))
    put = run_kvcq("put", *tls, "orders", "hello", "--json")
    assert put.returncode == 0, put.stderr
    pulled = run_kvcq("pull", *tls, "orders", "--json")
    assert b"hello" in pulled.stdout


def test_a_command_says_why_there_is_no_tls(
    target: str, authority: Authority, tmp_path: Path
) -> None:
    foreign = Authority(tmp_path, "foreign")
    plain = run_here("stats", "--server", target)
    assert plain.returncode == 3
    assert b"speaks TLS: give" in plain.stderr
    assert b"--tls-ca" in plain.stderr
    wrong = run_here("stats", "--server", target, "--tls-ca", str(foreign.ca))
    assert wrong.returncode == 3
    assert b"an authority that is not trusted" in wrong.stderr.replace(b"\n", b" ")
    missing = run_here("stats", "--server", target, "--tls-ca", str(tmp_path / "none"))
    assert missing.returncode == 2
    assert b"--tls-ca" in missing.stderr
    half = run_here("stats", "--server", target, "--tls-cert", str(authority.ca))
    assert half.returncode == 2
    assert b"together" in half.stderr


def test_the_next_command_trusts_the_same(target: str, authority: Authority) -> None:
    given = ("--server", target, "--tls-ca", str(authority.ca))
    refused = run_here("topic", "describe", "none", *given)
    assert refused.returncode == 1
    assert f"--tls-ca {authority.ca}".encode() in refused.stderr.replace(b"\n", b" ")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--host", "0.0.0.0"), b"--insecure-listen"),
        (("--tls-cert", "none.pem"), b"tls_key"),
        (("--tls-cert", "none.pem", "--tls-key", "none.key"), b"--tls-cert: none.pem"),
    ],
)
def test_a_server_is_not_begun_that_nobody_should_reach(
    flags: tuple[str, ...], said: bytes, tmp_path: Path
) -> None:
    refused = run_kvcq("serve", "--data", str(tmp_path / "store"), *flags)
    assert refused.returncode == 2
    assert said in refused.stderr
    assert not (tmp_path / "store").exists()
