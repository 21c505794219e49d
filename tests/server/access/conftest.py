"""A server that asks its callers who they are, for each test that asks for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest_asyncio

from tests.support.users import guarded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.serving import Served


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    rights = {
        "app": ["publish topic orders*", "subscribe topic orders*", "subscribe group billing"],
        "reader": ["subscribe topic orders", "subscribe topic %LMQ%me"],
    }
    async with guarded(tmp_path / "store", rights) as running:
        yield running
