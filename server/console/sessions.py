"""Sessions of signed-in users. They are in memory: a restart of the server ends all of them."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.console.viewers import Viewer

#: A session ends when it was not used for this long, and in any case after the other time.
IDLE_S = 30 * 60.0
LONGEST_S = 12 * 3600.0
MAX_SESSIONS = 1024


@dataclass(slots=True)
class _Session:
    viewer: Viewer
    begun_s: float
    used_s: float


class Sessions:
    """Tokens and their viewers. If there are too many, the least recently used one ends.

    Only the digest of a token is stored, so a leak of the process's memory signs no one in.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        """`now_s`: a clock that never goes back."""
        self._now_s = now_s
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()

    def begin(self, viewer: Viewer) -> str:
        """Start a session; returns the token for the viewer's cookie."""
        token = secrets.token_urlsafe(32)
        now = self._now_s()
        self._sessions[_digest(token)] = _Session(viewer, now, now)
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return token

    def viewer(self, token: str) -> Viewer | None:
        """The viewer of the token; None if it is unknown, or its session has ended."""
        key, now = _digest(token), self._now_s()
        session = self._sessions.get(key)
        if session is None:
            return None
        if now - session.used_s > IDLE_S or now - session.begun_s > LONGEST_S:
            del self._sessions[key]
            return None
        session.used_s = now
        self._sessions.move_to_end(key)
        return session.viewer

    def end(self, token: str) -> None:
        """End the session. Repeatable."""
        self._sessions.pop(_digest(token), None)

    def __len__(self) -> int:
        return len(self._sessions)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
