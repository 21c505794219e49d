"""server/cli/listeners.py: what systemd is told while the store is opened."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from server.cli.listeners import SystemdListener, TextListener
from server.config import ServerConfig
from server.errors import SettingsRefusedError
from server.process import ServiceManager
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pathlib import Path


class Told(ServiceManager):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__("/nowhere", None)
        self.told: list[tuple[str, ...]] = []

    def tell(self, *lines: str) -> None:
        self.told.append(lines)


def test_an_opening_that_goes_on_is_given_time_once_a_percent() -> None:
    manager = Told()
    listener = SystemdListener(manager)
    for fraction in (0.001, 0.002, 0.011, 0.012):
        listener.opening("replaying the log", fraction)
    assert manager.told == [
        ("STATUS=opening the store: replaying the log, 0%", "EXTEND_TIMEOUT_USEC=60000000"),
        ("STATUS=opening the store: replaying the log, 1%", "EXTEND_TIMEOUT_USEC=60000000"),
    ]


def test_a_reload_before_the_store_is_open_is_no_start() -> None:
    manager = Told()
    listener = SystemdListener(manager)
    for _ in range(2):
        listener.reloading()
        listener.reloaded([], [])
        listener.reloading()
        listener.reload_refused(SettingsRefusedError(InvalidArgumentError("server.port", "is x")))
        listener.ready("127.0.0.1", 1)
    names = [[line.partition("=")[0] for line in lines] for lines in manager.told]
    assert names[:3] == [["STATUS"], ["STATUS"], ["STATUS", "READY"]]
    assert names[3:7] == [
        ["RELOADING", "MONOTONIC_USEC"],
        ["STATUS", "READY"],
        ["RELOADING", "MONOTONIC_USEC"],
        ["STATUS", "READY"],
    ]


def test_what_a_start_prints_for_an_ipv6_address_can_be_pasted(tmp_path: Path) -> None:
    lines: list[str] = []
    listener = TextListener(ServerConfig(data_dir=tmp_path), lines.append)
    listener.listening("::1", 8081)
    listener.ready("::1", 8081)
    assert "is listening on [::1]:8081" in lines[0].replace("\\", "")
    for command in ("put", "pull", "query"):
        (line,) = [each for each in lines if f" {command} --server" in each]
        words = shlex.split(line.replace("\\", ""))
        assert words[words.index("--server") + 1] == "[::1]:8081"
