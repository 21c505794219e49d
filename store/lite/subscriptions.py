"""Subscriptions of clients to lite topics, and which lite topics are ready; only in memory.

Clients subscribe again when they reconnect, so nothing has to survive a restart. In a *wildcard*
group all clients share one set of ready names, and every message of the parent adds its name. In
other groups each client has its own set. A name with several clients is in the set of each: the
first client to look gets the messages, the others find none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

from store.base import Lock
from store.consume_queue import queues_of
from store.errors import LiteQuotaError, UnknownLiteClientError
from store.lite.clients import Action, Client, Group, Pass, Synced
from store.lite.names import parts_of
from store.lite.ready import ReadyNames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from store.consume_queue import DispatchRequest
    from store.metadata import LiteGroup

    #: Called with a group and one of its clients; "" means all clients.
    Listener = Callable[[str, str], None]

#: Maximum number of names of all clients together.
MOST_SUBSCRIBED = 1_000_000
#: Maximum number of ready names of a wildcard group. If more become ready, they are not added, and
#: a later pass finds them.
MOST_READY = 100_000
#: A client that has neither synchronized nor received for this long is removed.
CLIENT_TIMEOUT_MS = 180_000
#: While one receive runs the pass, the others look again after this long.
_PASS_MS = 20
#: Number of attempts of a client whose names are remembered.
_MOST_ATTEMPTS = 16


class Subscriptions:
    """The subscriptions of all groups of lite topics.

    Thread: any. Locks: `_lock`, innermost; held while the names of one call are handled. Memory:
    about 250 bytes for each name of each client.
    """

    def __init__(
        self, most_subscribed: int = MOST_SUBSCRIBED, most_ready: int = MOST_READY
    ) -> None:
        # Constant after construction.
        self._most_subscribed = most_subscribed
        self._most_ready = most_ready
        self._lock = Lock()
        # Guarded by _lock.
        self._groups: dict[str, Group] = {}
        self._by_parent: dict[str, tuple[Group, ...]] = {}
        self._subscribed = 0
        self._gone: list[Group] = []  # removed, but not freed yet
        # Replaced whole.
        self._listeners: tuple[Listener, ...] = ()

    def is_wildcard(self, group_name: str) -> bool | None:
        """Whether it is a wildcard group; None if it has no client."""
        group = self._groups.get(group_name)
        return None if group is None else group.settings.is_wildcard

    @property
    def subscribed(self) -> int:
        """Number of names of all clients together."""
        return self._subscribed

    @property
    def clients(self) -> int:
        return sum(len(group.clients) for group in list(self._groups.values()))

    @property
    def passes(self) -> int:
        """Number of wildcard groups whose pass is not finished."""
        return sum(group.pass_after is not None for group in list(self._groups.values()))

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` when a client that had nothing to receive may have something, on any
        thread. It must be short. Returns a function that removes it."""
        self._listeners = (*self._listeners, listener)

        def remove() -> None:
            self._listeners = tuple(each for each in self._listeners if each is not listener)

        return remove

    # --- who is subscribed -----------------------------------------------------------------

    def sync(
        self,
        group_name: str,
        settings: LiteGroup,
        client_id: str,
        action: Action,
        names: Sequence[str],
        version: int,
        now_ms: int,
    ) -> Synced:
        """Change the client's names. The names must be valid, and each must occur once.

        A call with a lower version than an earlier one is late, and changes nothing; 0 means no
        version. Raises LiteQuotaError; then nothing has changed.
        """
        woken: set[tuple[str, str]] = set()
        with self._lock:
            if action is Action.LEAVE:
                self._leave(group_name, client_id)
                return Synced(0, [], [])
            group, client = self._enter(group_name, settings, client_id, now_ms)
            client.forget_lost(now_ms)
            if version and version < client.version:
                return Synced(len(client.names), [], list(client.lost))
            client.version = version or client.version
            added, removed = client.difference(action, names)
            if action is Action.COMPLETE:
                client.lost = {name: client.lost[name] for name in names if name in client.lost}
            self._check_quotas(group, client, len(added) - len(removed))
            for name in removed:
                self._release(group, client, name)
            if group.settings.is_exclusive:
                for name in added:
                    client.lost.pop(name, None)
                    for former in group.holders(name):
                        self._release(group, former, name)
                        former.lost[name] = now_ms
                        former.untold.append(name)
                        woken.add((group.name, former.id))
            for name in added:
                group.hold(name, client)
            # First: after an interrupt, a repeated call would not make these names ready.
            client.ready.add_all(added)
            client.names.update(added)
            self._subscribed += len(added)
            if added:
                woken.add((group.name, client.id))
            lost = list(client.lost)
            client.untold.clear()
        self._tell(woken)
        return Synced(len(client.names), added, lost)

    def is_new(self, group_name: str, client_id: str, names: Iterable[str]) -> list[str]:
        """The names that the client is not subscribed to yet."""
        with self._lock:
            group = self._groups.get(group_name)
            client = group.clients.get(client_id) if group else None
            return [name for name in names if client is None or name not in client.names]

    def subscribed_to(self, parent: str, name: str) -> int:
        """Number of clients subscribed to the name, except those of wildcard groups."""
        return sum(len(group.holders(name)) for group in self._by_parent.get(parent, ()))

    def clients_of(self, parent: str) -> int:
        """Number of clients of all groups of the parent."""
        return sum(len(group.clients) for group in self._by_parent.get(parent, ()))

    def forget(self, group_name: str) -> None:
        """Remove a deleted group. `expire` frees its memory, since a million names take seconds."""
        with self._lock:
            group = self._groups.pop(group_name, None)
            if group is not None:
                self._subscribed -= sum(len(client.names) for client in group.clients.values())
                self._leave_parent(group)
                self._gone.append(group)

    def expire(self, now_ms: int) -> int:
        """Remove clients that have not called for CLIENT_TIMEOUT_MS. Returns how many."""
        while self._gone:
            self._gone.pop().free()
        gone = 0
        for name in list(self._groups):
            with self._lock:
                group = self._groups.get(name)
                late = [
                    client.id
                    for client in (group.clients.values() if group else ())
                    if now_ms - client.seen_ms >= CLIENT_TIMEOUT_MS
                ]
            for client_id in late:
                with self._lock:  # one at a time: dispatch waits for the lock
                    group = self._groups.get(name)
                    client = group.clients.get(client_id) if group else None
                    if client is not None and now_ms - client.seen_ms >= CLIENT_TIMEOUT_MS:
                        self._leave(name, client_id)
                        gone += 1
        return gone

    def _enter(
        self, name: str, settings: LiteGroup, client_id: str, now_ms: int
    ) -> tuple[Group, Client]:
        group = self._groups.get(name)
        if (
            group is not None
            and settings._replace(client_quota=group.settings.client_quota) != group.settings
        ):  # the group was deleted and created again
            for former in list(group.clients):
                self._leave(name, former)
            group = None
        if group is None:
            group = Group(name, settings)
            # First, so that an interrupt leaves no group that messages do not reach. An earlier
            # interrupt may have left an unused group of that name.
            others = self._by_parent.get(settings.parent, ())
            others = tuple(one for one in others if one.name != name)
            self._by_parent[settings.parent] = (*others, group)
            self._groups[name] = group
        group.settings = settings
        client = group.clients.get(client_id)
        if client is None:
            ready = group.ready if settings.is_wildcard else ReadyNames()
            client = group.clients[client_id] = Client(client_id, ready, now_ms)
        client.seen_ms = now_ms
        return group, client

    def _leave(self, group_name: str, client_id: str) -> None:
        group = self._groups.get(group_name)
        client = group.clients.pop(client_id, None) if group else None
        if group is None or client is None:
            return
        for name in list(client.names):
            self._release(group, client, name)
        if not group.clients:
            del self._groups[group_name]
            self._leave_parent(group)

    def _leave_parent(self, group: Group) -> None:
        parent = group.settings.parent
        left = tuple(one for one in self._by_parent[parent] if one is not group)
        if left:
            self._by_parent[parent] = left
        else:
            del self._by_parent[parent]

    def _release(self, group: Group, client: Client, name: str) -> None:
        client.names.discard(name)
        client.ready.discard(name)
        group.release(name, client)
        self._subscribed -= 1

    def _check_quotas(self, group: Group, client: Client, more: int) -> None:
        most = group.settings.client_quota
        if more > 0 and len(client.names) + more > most:
            raise LiteQuotaError("client", len(client.names) + more, most)
        if more > 0 and self._subscribed + more > self._most_subscribed:
            raise LiteQuotaError("server", self._subscribed + more, self._most_subscribed)

    # --- what makes names ready ------------------------------------------------------------

    def dispatched(self, requests: Sequence[DispatchRequest]) -> None:
        """The store's listener for dispatched messages."""
        if self._by_parent:
            self.on_growth(name for name, _ in queues_of(requests))

    def on_growth(self, queues: Iterable[str]) -> None:
        """Make the lite topics of these light queues ready, since they have new messages."""
        parents = self._by_parent
        found = [
            parts
            for queue in queues
            if (parts := parts_of(queue)) is not None and parts[0] in parents
        ]
        if not found:
            return
        woken: set[tuple[str, str]] = set()
        with self._lock:
            for parent, name in found:
                for group in self._by_parent.get(parent, ()):
                    self._make_ready(group, name, woken)
        self._tell(woken)

    def freed(self, group_name: str, queue: str) -> None:
        """Make the light queue's lite topic ready for the group; with "" all of them."""
        if group_name not in self._groups:
            return
        woken: set[tuple[str, str]] = set()
        with self._lock:
            group = self._groups.get(group_name)
            if group is None:
                return
            if not queue:
                self._make_all_ready(group, woken)
            elif (parts := parts_of(queue)) is not None and parts[0] == group.settings.parent:
                self._make_ready(group, parts[1], woken)
        self._tell(woken)

    def _make_ready(self, group: Group, name: str, woken: set[tuple[str, str]]) -> None:
        if group.settings.is_wildcard and len(group.ready) >= self._most_ready:
            group.begin_pass_again()
            return
        for client_id, ready in group.sets_of(name):
            if ready.add(name):
                woken.add((group.name, client_id))

    def _make_all_ready(self, group: Group, woken: set[tuple[str, str]]) -> None:
        if group.settings.is_wildcard:
            group.begin_pass_again()
            woken.add((group.name, ""))
            return
        for client in group.clients.values():
            client.ready.add_all(client.names)
            woken.add((group.name, client.id))

    def _tell(self, woken: set[tuple[str, str]]) -> None:
        for listener in self._listeners:
            for group, client in woken:
                listener(group, client)

    # --- what a receive looks at -----------------------------------------------------------

    def receives(
        self, group_name: str, settings: LiteGroup, client_id: str, now_ms: int
    ) -> list[str]:
        """Note a receive of the client. Returns the names that it lost since its last receive.

        Adds the client to a wildcard group. In other groups the client must have synchronized
        before; otherwise raises UnknownLiteClientError.
        """
        with self._lock:
            group = self._groups.get(group_name)
            if settings.is_wildcard:
                self._enter(group_name, settings, client_id, now_ms)
                return []
            client = group.clients.get(client_id) if group else None
            if client is None:
                raise UnknownLiteClientError(group_name, client_id)
            client.seen_ms = now_ms
            untold, client.untold = client.untold, []
            return untold

    def waits(self, group_name: str, client_id: str, now_ms: int) -> None:
        """Note that the client waits to receive: it must be one of a wildcard group, or known."""
        with self._lock:
            group = self._groups.get(group_name)
            if group is not None and (group.settings.is_wildcard or client_id in group.clients):
                self._enter(group_name, group.settings, client_id, now_ms)

    def take(
        self, group_name: str, client_id: str, count: int, now_ms: int, into: list[str]
    ) -> None:
        """Move up to `count` ready names to `into`. Each must be passed to `looked` or
        `put_back`."""
        with self._lock:
            ready = self._ready(group_name, client_id)
            if ready is not None:
                ready.ring(now_ms)
                ready.take(count, into)

    def put_back(self, group_name: str, client_id: str, names: list[str]) -> None:
        """Make names ready again that were taken and not looked at."""
        with self._lock:
            group = self._groups.get(group_name)
            if group is None:
                return
            if group.settings.is_wildcard:  # even if the client has left meanwhile
                group.ready.put_back(names)
            elif (client := group.clients.get(client_id)) is not None:
                client.ready.put_back([name for name in names if name in client.names])

    def looked(
        self,
        group_name: str,
        client_id: str,
        looks: Sequence[tuple[str, bool, int | None]],
    ) -> None:
        """Report looks: a name, whether it has more to deliver now, and the store time (ms) at
        which it may have more; None if only an event can change that."""
        woken: set[tuple[str, str]] = set()
        with self._lock:
            group = self._groups.get(group_name)
            if group is None:
                return
            for name, is_more, look_ms in looks:
                for of_client, ready in group.sets_of(name):
                    is_own = group.settings.is_wildcard or of_client == client_id
                    if is_more and is_own:
                        ready.add(name)
                    if look_ms is not None and ready.wake_at(name, look_ms) and not is_own:
                        woken.add((group.name, of_client))
        self._tell(woken)

    def next_look_ms(self, group_name: str, client_id: str, now_ms: int) -> int | None:
        """Store time at which the client should look again, ms; None: after a listener's call."""
        with self._lock:
            ready = self._ready(group_name, client_id)
            if ready is None:
                return None
            group = self._groups[group_name]
            if ready or (group.pass_after is not None and not group.is_passing):
                return now_ms
            alarm = ready.next_alarm_ms
            if not group.is_passing:
                return alarm
            pause = now_ms + _PASS_MS
            return pause if alarm is None else min(alarm, pause)

    def _ready(self, group_name: str, client_id: str) -> ReadyNames | None:
        group = self._groups.get(group_name)
        client = group.clients.get(client_id) if group else None
        return client.ready if client else None

    # --- attempts --------------------------------------------------------------------------

    def attempt(self, group_name: str, client_id: str, attempt: int) -> list[str]:
        """Light queues from which an earlier receive with that attempt id got messages."""
        with self._lock:
            group = self._groups.get(group_name)
            client = group.clients.get(client_id) if group else None
            return list(client.attempts.get(attempt, ())) if client else []

    def attempted(self, group_name: str, client_id: str, attempt: int, names: list[str]) -> None:
        with self._lock:
            group = self._groups.get(group_name)
            client = group.clients.get(client_id) if group else None
            if client is not None:
                client.attempts[attempt] = names
                if len(client.attempts) > _MOST_ATTEMPTS:
                    client.attempts.popitem(last=False)

    # --- the pass of a wildcard group ------------------------------------------------------

    def begin_pass(self, group_name: str, who: Pass) -> str | None:
        """Continue the pass; returns the light queue after which it continues. None if no pass is
        due, another call continues it, or many names are ready.

        Must be paired with `end_pass`. If that is not called, another call may continue from the
        same place once `who` is over.
        """
        with self._lock:
            group = self._groups.get(group_name)
            if group is None or group.pass_after is None or group.is_passing:
                return None
            if len(group.ready) >= self._most_ready // 2:
                return None
            group.passing = ref(who)
            return group.pass_after

    def end_pass(
        self, group_name: str, who: Pass, after: str | None, names: Sequence[str] = ()
    ) -> None:
        """Make these of the passed names ready. The pass continues after `after`; None if it has
        reached the end. Does nothing if another call continues the pass."""
        with self._lock:
            group = self._groups.get(group_name)
            if group is None or group.passing is None or group.passing() is not who:
                return
            group.ready.add_all(names)
            group.pass_after = "" if group.pass_again else after
            group.pass_again, group.passing = False, None
