"""A served store that asks its callers who they are."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kvcq_client import AsyncClient, Credentials, UnauthenticatedError
from server.access import ResourceKind, Right, Role, users_of_stopped_store
from tests.support.serving import SMALL_STORE, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from server.access import Users
    from tests.support.serving import Served

ADMIN = Credentials("ops", "the-secret-of-ops")


def right(text: str) -> Right:
    """Such as `publish topic orders*`."""
    role, kind, pattern = text.split()
    return Right(Role(role), ResourceKind(kind), pattern)


def secret_of(name: str) -> str:
    return f"the-secret-of-{name}"


def add_users(
    directory: Path,
    users: dict[str, list[str]],
    segment_bytes: int = SMALL_STORE["segment_bytes"],
) -> None:
    """An administrator, and these users with their rights, in a stopped store."""
    with users_of_stopped_store(directory, None, segment_bytes) as found:
        found.create(ADMIN.access_key, is_admin=True, secret=ADMIN.secret)
        for name, rights in users.items():
            found.create(name, secret=secret_of(name))
            found.grant(name, map(right, rights))


@asynccontextmanager
async def guarded(
    directory: Path,
    users: dict[str, list[str]],
    **settings: Any,  # noqa: ANN401 - as `serving` has it
) -> AsyncIterator[Served]:
    """A server with these users, and the administrator ADMIN."""
    add_users(directory, users)
    async with serving(directory, access=True, **settings) as served:
        yield served


def users_of(served: Served) -> Users:
    gatekeeper = served.server._gatekeeper
    assert gatekeeper is not None
    assert gatekeeper.users is not None
    return gatekeeper.users


def client_of(served: Served, name: str, secret: str | None = None) -> AsyncClient:
    credentials = Credentials(name, secret or secret_of(name))
    return AsyncClient(served.target, credentials=credentials, timeout_s=60.0)


async def refusal(client: AsyncClient) -> str:
    """What the client is told when it may not come in."""
    with pytest.raises(UnauthenticatedError) as refused:
        await client.statistics()
    return str(refused.value)
