"""Members of shared groups, as `kvcq group describe` shows them. They are derived from calls and
kept in memory only, since no decision depends on them.

A member is a connection of a user, while one of its calls waits, and for IDLE_MS after its last
one. A connection that breaks off, as when its client is killed, is a member only while it has
messages: its stream of calls ends then, or a waiting call ends without an answer. Its messages are
found by the leases that it got, among the last LEASES of all groups.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from server.access import current_caller
from server.workers import CALLER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

#: A member without a call for this long, and without messages, is removed.
IDLE_MS = 60_000
#: Members that are remembered, of all groups, and leases. Those used last stay.
MEMBERS = 10_000
LEASES = 65_536
#: Members of one answer.
SHOWN = 1000


class Shown(NamedTuple):
    """A member of a group."""

    user: str  # "" if callers need no user
    peer: str  # gRPC's name of the connection
    since_ms: int  # store time, ms: since when it has called without a long pause
    last_ms: int  # store time, ms: its last call began or ended
    waiting: int  # calls that wait
    in_flight: int  # messages


class _Member:
    __slots__ = ("last_ms", "peer", "since_ms", "user", "waiting")

    def __init__(self, user: str, peer: str, now_ms: int) -> None:
        self.user = user
        self.peer = peer
        self.since_ms = self.last_ms = now_ms
        self.waiting = 0


class Members:
    """The members of all shared groups. Owned by the event loop's thread. Memory: bounded by
    MEMBERS and LEASES, about 10 MiB."""

    def __init__(self, time_ms: Callable[[], int]) -> None:
        """`time_ms`: the store's clock."""
        self._time_ms = time_ms
        self._members: OrderedDict[tuple[str, str, str], _Member] = OrderedDict()
        self._leases: OrderedDict[int, _Member] = OrderedDict()
        # Connections that broke off, and made no call since.
        self._gone: OrderedDict[str, None] = OrderedDict()

    def seen(self, group: str) -> _Member:
        """The current caller receives from the group."""
        now_ms = self._time_ms()
        key = group, current_caller().name, CALLER.get()
        member = self._members.get(key)
        if member is None:
            member = self._members[key] = _Member(*key[1:], now_ms)
            if len(self._members) > MEMBERS:
                self._members.popitem(last=False)
        else:
            self._members.move_to_end(key)
            if now_ms - member.last_ms > IDLE_MS and not member.waiting:
                member.since_ms = now_ms
        member.last_ms = now_ms
        self._gone.pop(member.peer, None)
        return member

    def disconnected(self, peer: str) -> None:
        """The connection broke off its calls."""
        self._gone[peer] = None
        self._gone.move_to_end(peer)
        if len(self._gone) > MEMBERS:
            self._gone.popitem(last=False)

    @contextmanager
    def waiting(self, group: str) -> Iterator[None]:
        """A context while a call of the current caller waits."""
        member = self.seen(group)
        member.waiting += 1
        try:
            yield
        except asyncio.CancelledError:
            if member.waiting == 1:
                self.disconnected(member.peer)
            raise
        finally:
            member.waiting -= 1
            member.last_ms = self._time_ms()

    def given(self, group: str, nonces: Iterable[int]) -> None:
        """The caller got messages in these leases."""
        member = self.seen(group)
        for nonce in nonces:
            self._leases[nonce] = member
            self._leases.move_to_end(nonce)
        while len(self._leases) > LEASES:
            self._leases.popitem(last=False)

    def who(self, nonces: Iterable[int]) -> dict[int, tuple[str, str]]:
        """User and connection, as gRPC names it, that got these leases, as far as remembered."""
        known = {nonce: self._leases.get(nonce) for nonce in nonces}
        return {nonce: (one.user, one.peer) for nonce, one in known.items() if one is not None}

    def of(self, group: str, held: Mapping[int, int]) -> list[Shown]:
        """The group's members, oldest first; `held`: messages by nonce of lease."""
        has: dict[_Member, int] = {}
        for nonce, count in held.items():
            member = self._leases.get(nonce)
            if member is not None:
                has[member] = has.get(member, 0) + count
        now_ms = self._time_ms()
        found = [
            Shown(one.user, one.peer, one.since_ms, one.last_ms, one.waiting, has.get(one, 0))
            for (name, _, _), one in self._members.items()
            if name == group and (one.waiting or one in has or self._is_idle(one, now_ms))
        ]
        return sorted(found, key=lambda one: (one.since_ms, one.peer))[:SHOWN]

    def _is_idle(self, member: _Member, now_ms: int) -> bool:
        """Whether it is between two calls, as far as that is known."""
        return now_ms - member.last_ms <= IDLE_MS and member.peer not in self._gone
