"""Two sides behind one dispatch: which are in use, and how far each is.

Each side has its own watermark, the physical offset up to which it has everything. Recovery starts
each from its own, and dispatching again what a side has changes nothing. The side that serves reads
is required: its failure is dispatch's failure. If the other side fails it falls behind, but
dispatch continues; the attendant is notified, and brings it up again.

Invariant: a joined side has everything below `dispatched_offset`.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Protocol

from migration.sides.side import Side
from migration.state import SideName
from store.base import Lock
from store.errors import StoreBusyError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from migration.sides.side import SideStore
    from migration.state import Phase
    from store.consume_queue import DispatchRequest

logger = logging.getLogger(__name__)

#: On opening, a side that is at most this far behind catches up by the replay of the log; otherwise
#: by a backfill, while the store runs.
JOIN_BYTES = 64 << 20
#: One dispatch waits no longer than this for a filler.
_HELD_BACK_MOST_S = 0.05


class Attendant(Protocol):
    """Brings up a side that lags. Called from dispatch and upkeep, so it must not wait for them."""

    def side_stopped(self, name: SideName, error: BaseException) -> None:
        """The side failed, and falls behind."""
        ...

    def look(self) -> None:
        """Called about every second."""
        ...

    def close(self) -> None:
        """Called first when the store closes: on return no side is being filled."""
        ...


class SidePair:
    """One side or two, and the dispatch to them.

    Thread: any. `_dispatching` admits one dispatch, join, or change of phase at a time; a side's
    `filling` is taken before it, never after.
    """

    def __init__(
        self,
        phase: Phase,
        stores: dict[SideName, SideStore],
        attendant: Attendant,
        log_start: int = 0,
    ) -> None:
        """`stores` has at least the side that serves reads."""
        # Constant after construction.
        self._attendant = attendant
        self._dispatching = Lock()
        #: Share of their time that dispatching threads must wait, for a filler that would not catch
        #: up otherwise; from 0 to below 1.
        self.brake = 0.0
        self._dispatched_s = 0.0
        # Guarded by _dispatching; read freely.
        self.phase = phase
        #: Rises with each change of phase, also with one to the same.
        self.changes = 0
        self._sides = {name: Side(name, store) for name, store in stores.items()}
        self._held_from: dict[SideName, int] = {}  # see `hold_log`
        # Names that ended since the last dispatch, and where: of what that dispatch begins with.
        self._ended: list[tuple[str, int]] = []
        for side in self._sides.values():
            side.joined = side.name is phase.serving
        self._dispatched = self._least_joined()
        # One that is behind the log's start also lacks what only the other side knows.
        nearly = max(self._dispatched - JOIN_BYTES, log_start)
        for side in self._sides.values():
            side.joined |= side.store.dispatched_offset >= nearly
        self._dispatched = self._least_joined()

    def _least_joined(self) -> int:
        return min(
            (side.store.dispatched_offset for side in self._sides.values() if side.joined),
            default=0,
        )

    def side(self, name: SideName) -> Side | None:
        """The side, if it is in use."""
        return self._sides.get(name)

    def sides(self) -> list[Side]:
        """The sides in use."""
        return [side for name in SideName if (side := self._sides.get(name)) is not None]

    def watermark(self, name: SideName) -> int | None:
        """Physical offset up to which the side has everything; None if it is not in use."""
        side = self._sides.get(name)
        return None if side is None else side.store.dispatched_offset

    def is_joined(self, name: SideName) -> bool:
        side = self._sides.get(name)
        return side is not None and side.joined

    def attach(self, name: SideName, store: SideStore) -> Side:
        """Add a side, behind the others; a backfill brings it up and joins it.

        Replaces one with the same name, which must be closed.
        """
        with self._dispatching:
            side = Side(name, store)
            self._sides = {**self._sides, name: side}
            return side

    def detach(self, name: SideName) -> SideStore:
        """Remove a side, which the caller must close. It must not be required any more."""
        with self._dispatching:
            side = self._sides[name]
            self._sides = {other: each for other, each in self._sides.items() if other is not name}
        # A running filler ends first.
        with side.filling:
            return side.store

    def change_phase(self, make: Callable[[], Phase]) -> None:
        """At a dispatch boundary, set the phase to what `make` returns.

        The work of `make`, such as writing the state to disk, completes before anything else is
        dispatched; if it raises, nothing changes.
        """
        with self._dispatching:
            self.phase = make()
            self.changes += 1

    def join(self, name: SideName, fill_rest: Callable[[int, int], None]) -> None:
        """From now on live dispatch feeds the side.

        `fill_rest(start, end)` dispatches the remaining part to it, while everything else waits.
        """
        side = self._sides[name]
        with side.filling, self._dispatching:
            fill_rest(side.store.dispatched_offset, self._dispatched)
            for name_at in self._ended:
                side.store.delete_topic(*name_at)
            side.joined = True

    def hold_log(self, name: SideName, start: int | None) -> None:
        """Hold the log from `start` on, which a filler of the side still has to read; None to
        release it."""
        with self._dispatching:
            if start is None:
                self._held_from.pop(name, None)
            else:
                self._held_from[name] = start

    def still_needed(self) -> int:
        """Physical offset at and above which parts of the log still have to be read."""
        held = self._held_from
        return min([self._dispatched, *held.values()])

    def is_required(self, side: Side) -> bool:
        """Whether it serves reads."""
        return side.name is self.phase.serving

    def _usable(self) -> list[Side]:
        """Sides that have not failed, the required one first: if it raises, nothing else is
        done."""
        found = [side for side in self._sides.values() if side.failure is None]
        return sorted(found, key=lambda side: not self.is_required(side))

    def keep_out(self, name: SideName, reason: str) -> None:
        """On opening: the side was stopped before, and stays stopped until an operator resumes."""
        side = self._sides[name]
        side.failure = StoreError(reason)
        side.joined = False
        self._dispatched = self._least_joined()

    def stop_side(self, side: Side, error: BaseException) -> None:
        """Leave the side behind; dispatch continues without it."""
        if side.failure is not None:
            return
        side.failure = error
        side.joined = False
        self._held_from.pop(side.name, None)
        logger.error(
            "the %s side stopped at physical offset %d, the store goes on without it: %s",
            side.name.value,
            side.store.dispatched_offset,
            error,
        )
        self._attendant.side_stopped(side.name, error)

    def _on_each(
        self,
        action: Callable[[Side], None],
        on_busy: Callable[[Side], None] | None = None,
    ) -> None:
        """Run `action` on every usable side; if one that is not required fails, it is stopped.

        A busy side has not failed: `on_busy` is called for it if it is not required. Without
        `on_busy` the caller gets the error, and repeats everything, so the action must be
        repeatable.
        """
        for side in self._usable():
            if self.is_required(side):
                action(side)
                continue
            try:
                action(side)
            except StoreBusyError as error:
                if on_busy is None:
                    raise
                logger.info("the %s side is busy: %s", side.name.value, error)
                on_busy(side)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is not the broker's
                self.stop_side(side, error)

    # --- dispatch --------------------------------------------------------------------------

    @property
    def dispatched_offset(self) -> int:
        return self._dispatched

    @property
    def gathers(self) -> bool:
        return any(side.joined and side.store.gathers for side in self._sides.values())

    def dispatch(self, requests: Sequence[DispatchRequest], end_offset: int) -> None:
        """See Dispatcher. Visible on return; raises what the required side raises."""
        with self._dispatching:
            self._on_joined(lambda store: store.dispatch(requests, end_offset))
            self._dispatched = max(self._dispatched, end_offset)
            self._ended.clear()
        if self.brake:
            self._hold_back()

    def delete_topic(self, topic: str, physical_offset: int) -> None:
        """See ConsumeQueueStore: on both sides. A side that is being filled is skipped, because its
        filler reaches the record that deletes the topic."""
        with self._dispatching:
            if (topic, physical_offset) not in self._ended:
                self._ended.append((topic, physical_offset))
            self._on_joined(lambda store: store.delete_topic(topic, physical_offset))

    def _on_joined(self, action: Callable[[SideStore], None]) -> None:
        """Must hold `_dispatching`. Raises what the required side raises."""
        action(self._sides[self.phase.serving].store)
        other = self._sides.get(self.phase.serving.other)
        if other is not None and other.joined:
            try:
                action(other.store)
            except StoreBusyError as error:
                # It lags from here on; the backfill looks for that and brings it up.
                other.joined = False
                logger.warning("the %s side lags: %s", other.name.value, error)
            except Exception as error:  # noqa: BLE001 - not the broker's failure
                self.stop_side(other, error)

    def _hold_back(self) -> None:
        """Wait in proportion to the time since the last dispatch, to slow producers down."""
        now_s = time.monotonic()
        took_s = min(now_s - self._dispatched_s, _HELD_BACK_MOST_S)
        time.sleep(min(took_s * self.brake / (1 - self.brake), _HELD_BACK_MOST_S))
        self._dispatched_s = time.monotonic()
