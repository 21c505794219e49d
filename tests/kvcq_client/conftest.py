"""A served store, a client of it, and a line between the two that can be cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest_asyncio

from kvcq_client import AsyncClient
from tests.support.cut_line import CutLine
from tests.support.serving import Served, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest_asyncio.fixture
async def served(tmp_path: Path, damaged: bool) -> AsyncIterator[Served]:
    async with serving(
        tmp_path / "store", store={"segment_bytes": 8 << 20}, damaged=damaged
    ) as running:
        yield running


@pytest_asyncio.fixture
async def client(served: Served) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(served.target, timeout_s=10) as connected:
        yield connected


@pytest_asyncio.fixture
async def line(served: Served) -> AsyncIterator[CutLine]:
    async with CutLine(served.target) as between:
        yield between
