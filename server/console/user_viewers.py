"""Viewers of a server that asks its callers who they are: its users, with the rights they have."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from server.console.viewers import Viewer

if TYPE_CHECKING:
    from server.access import Gatekeeper, User


@dataclass(frozen=True, slots=True)
class _SignedIn(Viewer):
    #: That the user had then: with another one the session ends.
    secret: str = field(repr=False)


class UserViewers:
    """Owned by the event loop's thread."""

    def __init__(self, gatekeeper: Gatekeeper) -> None:
        self._gatekeeper = gatekeeper

    @property
    def sign_in_needed(self) -> bool:
        return True

    @property
    def anybody(self) -> Viewer:
        return Viewer("", may_administer=False)

    async def signed_in(self, access_key: str, secret: str) -> Viewer | None:
        found = self._gatekeeper.user_with(access_key, secret, "Console")
        return None if found is None else _SignedIn(found.name, found.is_admin, found.secret)

    def as_now(self, viewer: Viewer) -> Viewer | None:
        found = self._find(viewer.name)
        if found is None or not isinstance(viewer, _SignedIn) or found.secret != viewer.secret:
            return None
        return _SignedIn(found.name, found.is_admin, found.secret)

    def let_in(self, viewer: Viewer) -> None:
        """What this task asks from now on, the viewer asks. Raises UnauthenticatedError."""
        self._gatekeeper.enter_as(viewer.name)

    def _find(self, name: str) -> User | None:
        users = self._gatekeeper.users
        return None if users is None else users.find(name)
