"""What a phase and a policy mean for one dispatch and one read. Immutable; replaced as a whole."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from migration.state.routing import Route, RoutingPolicy
from migration.state.state import BEFORE_CUTOVER, Phase
from store.format import is_mark

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.consume_queue import DispatchRequest

# Names in use are remembered; a million topics must not all stay in memory.
_CACHE_LIMIT = 65_536


class SideName(enum.Enum):
    """One of the two stores of queues."""

    FILES = "files"
    ROCKSDB = "rocksdb"

    @property
    def other(self) -> SideName:
        return SideName.ROCKSDB if self is SideName.FILES else SideName.FILES


class Routes:
    """Answers for one phase and policy. Thread: any; the caches only ever gain right answers."""

    def __init__(self, phase: Phase, policy: RoutingPolicy) -> None:
        self.phase = phase
        self.policy = policy
        uniform = not policy.rules
        #: Sides that take every name, so that nothing has to be taken apart for them.
        self._whole = {
            SideName.FILES: phase in BEFORE_CUTOVER
            or (uniform and self._takes(SideName.FILES, policy.default)),
            SideName.ROCKSDB: uniform and self._takes(SideName.ROCKSDB, policy.default),
        }
        self._uniform: SideName | None = None
        if phase in BEFORE_CUTOVER:
            self._uniform = SideName.FILES
        elif not policy.uses(Route.FILES):
            self._uniform = SideName.ROCKSDB
        self._cache: dict[str, Route] = {}

    @property
    def only_server(self) -> SideName | None:
        """The side that serves every name, if one does."""
        return self._uniform

    def required(self, side: SideName) -> bool:
        """Whether the side serves anything: then its failure is the store's."""
        if self._uniform is not None:
            return side is self._uniform
        return True

    def serving(self, name: str) -> SideName:
        """Where reads of the topic or light queue come from."""
        if self._uniform is not None:
            return self._uniform
        return SideName.FILES if self._route(name) is Route.FILES else SideName.ROCKSDB

    def takes(self, side: SideName, name: str) -> bool:
        """Whether the units of the name are written to the side."""
        return self._whole[side] or self._takes(side, self._route(name))

    def takes_all(self, side: SideName) -> bool:
        return self._whole[side]

    def split(
        self, requests: Sequence[DispatchRequest], side: SideName
    ) -> Sequence[DispatchRequest]:
        """What of `requests` goes to the side.

        The key index of the files holds the keys of all topics, since it can only be written in
        log order: a topic that comes later could not be added to it.
        """
        if self._whole[side]:
            return requests
        return split(
            requests, lambda name: self.takes(side, name), index_all=side is SideName.FILES
        )

    def _takes(self, side: SideName, route: Route) -> bool:
        if self.phase in BEFORE_CUTOVER:
            if side is SideName.FILES:
                return True
            return self.phase in (Phase.DOUBLE_WRITE, Phase.VERIFIED) and route is not Route.FILES
        if side is SideName.ROCKSDB:
            return route is not Route.FILES
        return route is Route.FILES or (route is Route.BOTH and self.phase is Phase.ROCKSDB)

    def _route(self, name: str) -> Route:
        route = self._cache.get(name)
        if route is None:
            route = self.policy.route(name)
            if len(self._cache) >= _CACHE_LIMIT:
                self._cache.clear()
            self._cache[name] = route
        return route


def may_gain(old: Routes, new: Routes, side: SideName) -> bool:
    """Whether any name at all is taken by the side under `new` and not under `old`.

    Names fall into classes by the patterns that match them; one name of each class is asked for.
    """
    names = ["\0"]
    for rule in (*old.policy.rules, *new.policy.rules):
        stem = rule.pattern.removesuffix("*")
        names += [stem, stem + "\0"]
    return any(new.takes(side, name) and not old.takes(side, name) for name in names)


def split(
    requests: Sequence[DispatchRequest], takes: Callable[[str], bool], *, index_all: bool = False
) -> list[DispatchRequest]:
    """What of `requests` concerns the names that are taken; with `index_all`, keys and tags of all.

    Keys of batches belong to no topic, and stand on both sides.
    A light queue whose carrier goes elsewhere becomes a request of its own: its unit is the same
    bytes.
    """
    found: list[DispatchRequest] = []
    for request in requests:
        light = request.light_queues
        if light:
            light = tuple(each for each in light if takes(each[0]))
        if takes(request.topic):
            same = len(light) == len(request.light_queues)
            found.append(request if same else request._replace(light_queues=light))
            continue
        if index_all:
            if request.keys or request.tag_code:
                found.append(request._replace(light_queues=(), in_queue=False))
        elif marks := tuple(key for key in request.keys if is_mark(key)):
            found.append(request._replace(keys=marks, light_queues=(), in_queue=False))
        if request.in_queue:
            found.extend(
                request._replace(
                    topic=name, queue_id=0, queue_offset=offset, keys=(), light_queues=()
                )
                for name, offset in light
            )
    return found
