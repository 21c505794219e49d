"""What the commands' tests have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.server_process import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server for all tests of a file."""
    with ServerProcess(tmp_path_factory.mktemp("store")) as server:
        server.wait_for("ready")
        yield server.target
