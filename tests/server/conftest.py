"""A served store for each test that asks for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from server.access import audit
from server.process import LineLimit
from tests.support.serving import Served, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def first_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another test was refused is no reason to leave a line out."""
    monkeypatch.setattr(audit, "_same", LineLimit(1, lambda: 0.0, audit.SAME_S))


@pytest_asyncio.fixture
async def served(tmp_path: Path, damaged: bool) -> AsyncIterator[Served]:
    """A server in ASYNC mode on an empty store."""
    async with serving(tmp_path / "store", damaged=damaged) as running:
        yield running
