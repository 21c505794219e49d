"""The clients, each installed once, and where the server of a test listens."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest

from tests.support.free_port import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.official import Installed, Official


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Installs a client the first time; what begins its program."""

    @cache
    def command(client: Official) -> list[str | Path]:
        return client.command(tmp_path_factory.mktemp(client.name) / "client")

    return command


@pytest.fixture
def port() -> int:
    return free_port()
