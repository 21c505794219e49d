"""The viewers of the console, and their rights.

Viewers and UserViewers are owned by the event loop's thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from server.access import Gatekeeper


@dataclass(frozen=True, slots=True)
class Viewer:
    """A user, or an anonymous viewer if the server requires no credentials."""

    name: str
    may_administer: bool


@dataclass(frozen=True, slots=True)
class _SignedIn(Viewer):
    #: The user's secret when they signed in: a new secret ends the session.
    secret: str = field(repr=False)


class Viewers:
    """The viewers of a server without users: every visitor is `anybody`."""

    #: Whether pages are only shown to users who have signed in.
    sign_in_needed = False

    def __init__(self, *, may_administer: bool) -> None:
        self.anybody = Viewer("", may_administer)

    async def signed_in(self, access_key: str, secret: str) -> Viewer | None:
        """The user with this key and secret. None does not reveal which of the two is wrong."""
        return self.anybody

    def as_now(self, viewer: Viewer) -> Viewer | None:
        """The viewer with current rights; None if the session has to end."""
        return self.anybody

    def authenticate(self, viewer: Viewer) -> None:
        """Make the viewer the caller of this task. Raises UnauthenticatedError."""


class UserViewers(Viewers):
    """The viewers of a server with users, who sign in with their access key and secret."""

    sign_in_needed = True

    def __init__(self, gatekeeper: Gatekeeper) -> None:
        super().__init__(may_administer=False)
        self._gatekeeper = gatekeeper

    async def signed_in(self, access_key: str, secret: str) -> Viewer | None:
        found = self._gatekeeper.user_with(access_key, secret, "Console")
        return None if found is None else _SignedIn(found.name, found.is_admin, found.secret)

    def as_now(self, viewer: Viewer) -> Viewer | None:
        users = self._gatekeeper.users
        found = None if users is None else users.find(viewer.name)
        if found is None or not isinstance(viewer, _SignedIn) or found.secret != viewer.secret:
            return None
        return _SignedIn(found.name, found.is_admin, found.secret)

    def authenticate(self, viewer: Viewer) -> None:
        self._gatekeeper.enter_as(viewer.name)
