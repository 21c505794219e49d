"""The clients of a group of lite topics, and the names that each is subscribed to."""

from __future__ import annotations

import enum
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from store.lite.ready import ReadyNames

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from weakref import ReferenceType

    from store.metadata import LiteGroup

#: After a client of an exclusive group lost a name to another client, a complete set that still
#: has the name does not take it back for this long.
LOST_MS = 180_000
#: Number of dicts that share the names of a group.
_PARTS = 256


class Action(enum.Enum):
    """How a client changes its names."""

    ADD = "add"
    REMOVE = "remove"
    COMPLETE = "complete"  # exactly these names
    LEAVE = "leave"  # no names; the client is removed


class Synced(NamedTuple):
    """The result of `sync`."""

    subscribed: int  # number of the client's names now
    added: list[str]  # names that it was not subscribed to before
    lost: list[str]  # names that other clients of an exclusive group took from it


class Client:
    """A client of a group."""

    __slots__ = ("attempts", "id", "lost", "names", "ready", "seen_ms", "untold", "version")

    def __init__(self, client_id: str, ready: ReadyNames, now_ms: int) -> None:
        self.id = client_id
        self.names: set[str] = set()
        self.ready = ready
        self.seen_ms = now_ms
        self.version = 0
        self.lost: dict[str, int] = {}  # name -> when another client took it
        self.untold: list[str] = []  # lost, and not returned by a receive yet
        self.attempts: OrderedDict[int, list[str]] = OrderedDict()

    def difference(self, action: Action, names: Sequence[str]) -> tuple[list[str], list[str]]:
        """Names to add, and names to remove."""
        if action is Action.REMOVE:
            return [], [name for name in dict.fromkeys(names) if name in self.names]
        added = [name for name in dict.fromkeys(names) if name not in self.names]
        if action is Action.ADD:
            return added, []
        wanted = set(names)
        return [name for name in added if name not in self.lost], [
            name for name in self.names if name not in wanted
        ]

    def forget_lost(self, now_ms: int) -> None:
        if self.lost:
            self.lost = {name: at for name, at in self.lost.items() if now_ms - at < LOST_MS}


class Pass:
    """A call that passes through all names. Referenced weakly, so it ends with the call."""

    #: Needed as well, because a kept exception keeps the call's frames, and so this object.
    is_over = False


class Group:
    """The subscriptions of one group. Guarded by the lock of `Subscriptions`."""

    __slots__ = (
        "_by_name",
        "clients",
        "name",
        "pass_after",
        "pass_again",
        "passing",
        "ready",
        "settings",
    )

    def __init__(self, name: str, settings: LiteGroup) -> None:
        self.name = name
        self.settings = settings
        self.clients: dict[str, Client] = {}
        # By name, in several dicts: a single dict of a million would block the interpreter for
        # tens of ms when it grows. A name with one client has no tuple, which would take 48 bytes.
        self._by_name: tuple[dict[str, Client | tuple[Client, ...]], ...] = tuple(
            {} for _ in range(_PARTS)
        )
        #: The ready names shared by all clients of a wildcard group.
        self.ready = ReadyNames()
        # The last light queue of the parent that the pass has reached; "" before the first, None if
        # no pass is due. A wildcard group needs one when it begins, and after MOST_READY.
        self.pass_after: str | None = "" if settings.is_wildcard else None
        self.passing: ReferenceType[Pass] | None = None
        self.pass_again = False  # restart once the running pass pauses

    @property
    def is_passing(self) -> bool:
        """Whether a call is running the pass."""
        who = self.passing() if self.passing is not None else None
        return who is not None and not who.is_over

    def begin_pass_again(self) -> None:
        if self.is_passing:
            self.pass_again = True
        else:
            self.pass_after = ""

    def holders(self, name: str) -> tuple[Client, ...]:
        found = self._by_name[hash(name) % _PARTS].get(name, ())
        return found if isinstance(found, tuple) else (found,)

    def sets_of(self, name: str) -> Iterator[tuple[str, ReadyNames]]:
        """The ready sets that the name belongs to, each with its client, "" for all clients."""
        if self.settings.is_wildcard:
            yield "", self.ready
            return
        for client in self.holders(name):
            yield client.id, client.ready

    def free(self) -> None:
        """Free the memory of a removed group in pieces, since a million names take seconds."""
        for client in self.clients.values():
            client.names.clear()
        for part in self._by_name:
            part.clear()

    def hold(self, name: str, client: Client) -> None:
        part = self._by_name[hash(name) % _PARTS]
        found = part.get(name)
        if found is None:
            part[name] = client
        elif isinstance(found, tuple):
            part[name] = (*found, client)
        else:
            part[name] = (found, client)

    def release(self, name: str, client: Client) -> None:
        part = self._by_name[hash(name) % _PARTS]
        found = part.get(name)
        if found is client:
            del part[name]
        elif isinstance(found, tuple):
            left = tuple(one for one in found if one is not client)
            part[name] = left[0] if len(left) == 1 else left
