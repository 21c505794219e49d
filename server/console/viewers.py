"""Who looks at the console, and what they may."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Viewer:
    """One user, or anybody where the server asks for no credentials."""

    name: str
    may_administer: bool


class Viewers(Protocol):
    """The server's users, as the console asks for them. Event loop."""

    @property
    def sign_in_needed(self) -> bool:
        """Whether pages are shown only to users."""
        ...

    @property
    def anybody(self) -> Viewer:
        """Who asks where no sign-in is needed."""
        ...

    async def signed_in(self, access_key: str, secret: str) -> Viewer | None:
        """The user that has these, or None; which of the two is wrong is not told."""
        ...

    def let_in(self, viewer: Viewer) -> None:
        """What this task asks from now on, the viewer asks. Raises what it is refused with."""
        ...

    def as_now(self, viewer: Viewer) -> Viewer | None:
        """The viewer with the rights of this moment; None when they may come in no more."""
        ...


class AnyViewer:
    """Of a server that asks for no credentials: whoever reaches the port may look."""

    def __init__(self, *, may_administer: bool) -> None:
        self._viewer = Viewer("", may_administer)

    @property
    def sign_in_needed(self) -> bool:
        return False

    @property
    def anybody(self) -> Viewer:
        return self._viewer

    async def signed_in(self, access_key: str, secret: str) -> Viewer | None:
        return self._viewer

    def as_now(self, viewer: Viewer) -> Viewer | None:
        return self._viewer

    def let_in(self, viewer: Viewer) -> None:
        """Nobody is asked who they are."""
