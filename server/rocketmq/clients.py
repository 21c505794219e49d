"""Known clients: one for each producer or consumer object of a program.

A client chooses its own id, and sends its settings on its telemetry stream. It is alive as long as
it sends heartbeats, whether or not that stream is open: after a restart of the server some clients
reopen it only minutes later, and must be served meanwhile. So this table is only used to answer
heartbeats, and to decide whose messages are renewed.
"""

from __future__ import annotations

from collections import OrderedDict
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from server.access import current_caller
from server.errors import ClientStatusError
from server.rocketmq.pb import values_pb2 as v2

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.edge import Context

#: User and client id. Includes the user, so that no user can act for another user's client.
ClientKey = tuple[str, str]

CLIENT_ID = "x-mq-client-id"
_MOST_ID_CHARACTERS = 255
#: A client that has not called for this long is gone, seconds.
SILENT_S = 120.0
#: Most known clients, a few hundred bytes each. Above it, the one that called longest ago is
#: dropped.
MOST_CLIENTS = 65_536


def client_of(context: Context) -> ClientKey:
    """The calling client. Raises ClientStatusError if the call does not name it."""
    for name, value in context.invocation_metadata() or ():
        if name == CLIENT_ID and isinstance(value, str) and value.strip():
            if len(value) > _MOST_ID_CHARACTERS:
                break
            return current_caller().name, value
    raise ClientStatusError(
        v2.CLIENT_ID_REQUIRED,
        f"the call has no header {CLIENT_ID} of 1 to {_MOST_ID_CHARACTERS} characters",
    )


class _Known(NamedTuple):
    heard_s: float
    is_lite: bool | None  # None: it has sent no settings


class Clients:
    """The live clients. Owned by the event loop's thread."""

    def __init__(self, now_s: Callable[[], float] = monotonic, most: int = MOST_CLIENTS) -> None:
        self._now_s = now_s
        self._most = most
        # Ordered by last call, the oldest first.
        self._known: OrderedDict[ClientKey, _Known] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def note_active(self, client: ClientKey, *, is_lite: bool | None = None) -> None:
        """Note a call of the client. `is_lite`: it sent settings of a consumer of lite topics; None
        if it sent no settings now."""
        now_s = self._now_s()
        if is_lite is None:
            is_lite = self.is_lite(client)
        self._known[client] = _Known(now_s, is_lite)
        self._known.move_to_end(client)
        oldest = next(iter(self._known.values()))
        if len(self._known) > self._most or now_s - oldest.heard_s >= SILENT_S:
            self._known.popitem(last=False)

    def is_lite(self, client: ClientKey) -> bool | None:
        """Whether it is a consumer of lite topics; None if it has sent no settings."""
        known = self._known.get(client)
        return None if known is None else known.is_lite

    def beat(self, client: ClientKey) -> None:
        """Record a heartbeat. Raises ClientStatusError if the client is unknown."""
        if client not in self._known:
            raise ClientStatusError(
                v2.UNRECOGNIZED_CLIENT_TYPE, "this client has not sent its settings yet"
            )
        self.note_active(client)

    def is_alive(self, client: ClientKey) -> bool:
        known = self._known.get(client)
        return known is not None and self._now_s() - known.heard_s < SILENT_S

    def end(self, client: ClientKey) -> None:
        """Remove a client that has ended. Repeatable."""
        self._known.pop(client, None)
