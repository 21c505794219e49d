"""sd_notify over a real socket: what a service manager is told, from start to end."""

from __future__ import annotations

import logging
import os
import signal
import socket
from typing import TYPE_CHECKING

import pytest

from server.process import ServiceManager
from tests.support.server_process import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Manager:
    """The other end of the socket."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.settimeout(60)

    def next(self) -> dict[str, str]:
        text = self._socket.recv(4096).decode()
        return dict(line.split("=", 1) for line in text.splitlines())

    def until(self, name: str) -> dict[str, str]:
        """The next that says so; the others say other things."""
        while True:
            told = self.next()
            if name in told:
                return told

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(str(tmp_path / "notify"))
    yield manager
    manager.close()


@pytest.mark.integration
def test_a_manager_hears_of_start_reload_refusal_and_end(
    tmp_path: Path, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    heard = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    file = tmp_path / "kvcq.toml"
    file.write_text("")
    try:
        with ServerProcess(tmp_path / "store", "--config", str(file)) as server:
            assert manager.next()["STATUS"].startswith("listens on 127.0.0.1:")
            assert manager.until("READY")["READY"] == "1"
            file.write_text("[store]\nreserved_hours = 1\nskip_damaged_records = true\n")
            server.send(signal.SIGHUP)
            begun = manager.next()
            assert begun["RELOADING"] == "1"
            assert int(begun["MONOTONIC_USEC"]) > 0
            assert manager.next() == {
                "STATUS": "settings read again: 1 changed, 1 wait for a restart",
                "READY": "1",
            }
            file.write_text("[store]\nreserved_hours = 0\n")
            server.send(signal.SIGHUP)
            assert manager.next()["RELOADING"] == "1"
            refused = manager.next()
            assert refused["READY"] == "1"
            assert "store.reserved_hours: 0.0 is not a number" in refused["STATUS"]
            server.send(signal.SIGTERM)
            assert manager.next()["STOPPING"] == "1"
            assert manager.next() == {"STATUS": "stopped, the store is closed"}
            assert server.wait() == 0
    finally:
        signal.signal(signal.SIGHUP, heard)


@pytest.mark.integration
def test_the_watchdog_is_fed_while_the_loop_runs(
    tmp_path: Path, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "30000")
    with ServerProcess(tmp_path / "store") as server:
        manager.until("READY")
        for _ in range(3):
            assert manager.until("WATCHDOG") == {"WATCHDOG": "1"}
        server.send(signal.SIGTERM)
        manager.until("STOPPING")
        assert server.wait() == 0


def test_abstract_names_are_told_too() -> None:
    name = f"kvcq-test-{os.getpid()}"
    manager = Manager(f"\0{name}")
    told = ServiceManager.of({"NOTIFY_SOCKET": f"@{name}"})
    assert told is not None
    told.tell("READY=1", "STATUS=two\nlines")
    assert manager.next() == {"READY": "1", "STATUS": "two lines"}
    manager.close()


@pytest.mark.parametrize(
    ("environment", "watchdog_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "2000000"}, 2.0),
        ({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": str(os.getpid())}, 2.0),
        ({"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_is_that_of_this_process(
    environment: dict[str, str], watchdog_s: float | None
) -> None:
    found = ServiceManager.of({"NOTIFY_SOCKET": "/run/x", **environment})
    assert found is not None
    assert found.watchdog_s == watchdog_s


@pytest.mark.parametrize("address", ["", "vsock:2:1", "relative"])
def test_nobody_is_told_where_there_is_no_such_socket(address: str) -> None:
    assert ServiceManager.of({"NOTIFY_SOCKET": address}) is None
    assert ServiceManager.of({}) is None


def test_a_manager_that_is_gone_is_logged_once_and_harms_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = ServiceManager.of({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    assert told is not None
    with caplog.at_level(logging.WARNING):
        told.tell("READY=1")
        told.tell("WATCHDOG=1")
    assert [record.getMessage()[:43] for record in caplog.records] == [
        "cannot tell the service manager READY=1: [E"
    ]
