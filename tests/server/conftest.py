"""A served store for each test that asks for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest_asyncio

from tests.support.serving import Served, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest_asyncio.fixture
async def served(tmp_path: Path, damaged: bool) -> AsyncIterator[Served]:
    """A server in ASYNC mode on an empty store."""
    async with serving(tmp_path / "store", damaged=damaged) as running:
        yield running
