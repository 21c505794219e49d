"""server/cli/top/sample.py: what a user may not see is left out, and said to be."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kvcq_client import Client, Credentials
from server.cli.top.figures import figures_of
from server.cli.top.sample import take
from server.cli.top.shown import document
from tests.support.users import ADMIN, guarded, secret_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("user", "denied"), [(ADMIN.access_key, False), ("app", True)])
async def test_topics_and_groups_are_for_administrators(
    tmp_path: Path, user: str, denied: bool
) -> None:
    async with guarded(tmp_path, {"app": ["publish topic orders"]}) as served:
        credentials = Credentials(user, secret_of(user))

        def look() -> dict[str, object]:
            with Client(served.target, timeout_s=10, credentials=credentials) as client:
                sample = take(client, 1.0)
                return document(figures_of(sample, sample, 0, 10, 10), served.target, 0)

        found = await asyncio.to_thread(look)
        assert found["ready"] is True
        assert found["denied"] is denied
        assert found["topicCount"] == (None if denied else 0)


async def test_what_was_refused_once_is_not_asked_for_again(tmp_path: Path) -> None:
    async with guarded(tmp_path, {"app": ["publish topic orders"]}) as served:

        def look() -> list[float]:
            credentials = Credentials("app", secret_of("app"))
            with Client(served.target, timeout_s=10, credentials=credentials) as client:
                first = take(client, 1.0)
                second = take(client, 2.0, denied=first.denied)
                assert second.denied
                numbers = (second.numbers, client.statistics())
                name = "server.refusals.GetActivity.PERMISSION_DENIED"
                return [found[name] for found in numbers]

        assert await asyncio.to_thread(look) == [1, 1]
