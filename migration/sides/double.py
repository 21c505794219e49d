"""Two stores of queues as one ConsumeQueueStore: RocketMQ's files and RocksDB."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING

from migration.sides.pair import SidePair
from store.errors import StoreBusyError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from migration.sides.pair import Attendant
    from migration.sides.side import Side, SideStore
    from migration.state import Phase, SideName
    from store.consume_queue import Boundary, Bounds, CqUnit, DispatchRequest, KeyHit, LastUnit

logger = logging.getLogger(__name__)


class DoubleQueueStore(SidePair):
    """ConsumeQueueStore over one side or two. Reads take no lock; they use `phase`."""

    def __init__(
        self,
        phase: Phase,
        stores: dict[SideName, SideStore],
        attendant: Attendant,
        absent: Collection[SideName] = (),
        log_start: int = 0,
    ) -> None:
        """`stores` has at least the side that serves reads; `absent` are those that could not be
        opened, and will be by a later opening. `log_start`: physical offset of the log's first
        byte."""
        super().__init__(phase, stores, attendant, log_start)
        self._absent = frozenset(absent)
        self._closed = False
        #: Expiry that a side was too busy for, which `maintain` repeats: log start, store time.
        self._owed_expiry: dict[SideName, tuple[int, int]] = {}

    @property
    def absent(self) -> list[SideName]:
        """Sides that could not be opened and have no replacement."""
        return [name for name in self._absent if self.side(name) is None]

    def is_gone(self, name: SideName) -> None:
        """Note that the side was removed from the disk."""
        self._absent -= {name}

    def rewrite(self, requests: Sequence[DispatchRequest]) -> None:
        """See ConsumeQueueStore: on every joined side.

        Also raises StoreBusyError for a side that serves no reads; repeatable.
        """

        def rewrite(side: Side) -> None:
            if side.joined:
                side.store.rewrite(requests)

        self._on_each(rewrite)

    # --- reads -----------------------------------------------------------------------------

    @property
    def _serving(self) -> SideStore:
        return self._sides[self.phase.serving].store

    def next_offsets(self, queues: Sequence[tuple[str, int]]) -> list[int]:
        return self._serving.next_offsets(queues)

    def last_of(self, queues: Sequence[tuple[str, int]]) -> list[tuple[int, int] | None]:
        return self._serving.last_of(queues)

    def bounds(self, topic: str, queue_id: int, log_start: int) -> Bounds:
        return self._serving.bounds(topic, queue_id, log_start)

    def read_units(
        self, topic: str, queue_id: int, start: int, count: int
    ) -> list[tuple[int, CqUnit]]:
        return self._serving.read_units(topic, queue_id, start, count)

    def read_places(
        self, topic: str, queue_id: int, start: int, count: int
    ) -> list[tuple[int, int]]:
        return self._serving.read_places(topic, queue_id, start, count)

    def places_of(
        self, topic: str, queue_id: int, offsets: Sequence[int]
    ) -> list[tuple[int, int] | None]:
        return self._serving.places_of(topic, queue_id, offsets)

    def search_time(
        self, topic: str, queue_id: int, time_ms: int, boundary: Boundary, log_start: int
    ) -> int:
        return self._serving.search_time(topic, queue_id, time_ms, boundary, log_start)

    def query_key(
        self,
        topic: str,
        key: str,
        begin_ms: int,
        end_ms: int,
        after: KeyHit | None,
        limit: int,
    ) -> list[KeyHit]:
        return self._serving.query_key(topic, key, begin_ms, end_ms, after, limit)

    def marks_below(self, key: str, limit: int) -> list[tuple[str, int]] | None:
        return self._serving.marks_below(key, limit)

    def queue_ids(self, topic: str) -> list[int]:
        return self._serving.queue_ids(topic)

    def list_names(self, prefix: str, after: str | None, limit: int) -> list[str]:
        return self._serving.list_names(prefix, after, limit)

    def restore_last_units(self, units: Sequence[LastUnit]) -> None:
        self._on_each(lambda side: side.store.restore_last_units(units))

    # --- removal ---------------------------------------------------------------------------

    def expire(self, log_start: int, store_time_ms: int) -> None:
        self._owed_expiry.clear()  # this expiry includes it

        def later(side: Side) -> None:
            self._owed_expiry[side.name] = (log_start, store_time_ms)

        self._on_each(lambda side: side.store.expire(log_start, store_time_ms), later)

    def keep_from(self, store_time_ms: int) -> None:
        for name, (log_start, expired_ms) in self._owed_expiry.items():
            self._owed_expiry[name] = (log_start, min(expired_ms, store_time_ms))
        self._on_each(lambda side: side.store.keep_from(store_time_ms))

    def maintain(self) -> int:
        self._attendant.look()
        if owed := next(iter(self._owed_expiry.values()), None):
            self.expire(*owed)
        lost_until = [0]
        self._on_each(lambda side: lost_until.append(side.store.maintain()), _next_time)
        return max(lost_until)

    def compact(
        self,
        progress: Callable[[float], None] | None = None,
        *,
        family: str | None = None,
        topic: str | None = None,
    ) -> None:
        """See ConsumeQueueStore: on each side, one after the other."""
        ended: list[Exception] = []

        def told(share: float) -> None:
            try:
                if progress is not None:
                    progress(share)
            except Exception as error:
                # Not a failure of the side.
                ended.append(error)
                raise StoreBusyError("the compaction is left off") from error

        def compact(side: Side) -> None:
            if not ended:
                side.store.compact(told, family=family, topic=topic)

        try:
            self._on_each(compact, _next_time)
        except StoreBusyError:
            if not ended:
                raise
        if ended:
            raise ended[0]

    # --- durability and end of life --------------------------------------------------------

    def flush(self) -> None:
        """See ConsumeQueueStore. Sides are flushed one by one; the log was flushed before."""
        self._on_each(lambda side: side.store.flush(), _next_time)

    def statistics(self) -> dict[str, float]:
        values: dict[str, float] = {}
        for name, side in self._sides.items():
            if not side.is_closed:
                values.update(side.store.statistics())
            values[f"migration_{name.value}_dispatched_offset"] = side.store.dispatched_offset
            values[f"migration_{name.value}_joined"] = float(side.joined)
            values[f"migration_{name.value}_stopped"] = float(side.failure is not None)
        return values

    def close(self) -> None:
        """See ConsumeQueueStore. Both sides are closed, even if one cannot be flushed."""
        if self._closed:
            return
        self._closed = True
        failures: list[Exception] = []
        with ExitStack() as stack:  # so that an error leaves no side open
            for side in reversed(self._sides.values()):
                stack.callback(self._close_side, side, failures)
            self._attendant.close()
        if failures:
            raise failures[0]

    def _close_side(self, side: Side, failures: list[Exception]) -> None:
        try:
            with side.filling:
                side.store.close()
        except (StoreError, OSError) as error:
            if self.is_required(side):
                failures.append(error)
            logger.exception("the %s side was not closed in order", side.name.value)


def _next_time(_: Side) -> None:
    """Ignore a busy side; the request is repeated soon."""
