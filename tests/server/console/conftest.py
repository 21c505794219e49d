"""A console over real HTTP, of a real server with a real store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest_asyncio

from tests.support.consoles import ConsoleClient, console_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.serving import Served


@pytest_asyncio.fixture
async def console(served: Served) -> AsyncIterator[ConsoleClient]:
    """Of anybody, who may not administer."""
    async with console_of(served) as client:
        yield client


@pytest_asyncio.fixture
async def admin(served: Served) -> AsyncIterator[ConsoleClient]:
    """Of anybody, who may."""
    async with console_of(served, may_administer=True) as client:
        yield client
