"""Two sides behind one dispatch: which are in use, and how far each is.

Each side has its own watermark, the physical offset up to which it has everything. Recovery starts
each side from its own watermark; dispatching records again changes nothing. The side that serves
reads is required: if it fails, dispatch fails. If the other side fails, dispatch continues without
it; the attendant is notified, and brings it up again.

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
#: Longest wait of one dispatch for a filler, seconds.
_HELD_BACK_MOST_S = 0.05


class Attendant(Protocol):
    """Brings up a side that lags. Called from dispatch and upkeep, so it must not block on them."""

    def side_stopped(self, name: SideName, error: BaseException) -> None:
        """The side failed, and is no longer dispatched to."""
        ...

    def look(self) -> None:
        """Called about every second."""
        ...

    def close(self) -> None:
        """Called first when the store closes. On return no side is being filled."""
        ...


class SidePair:
    """One side or two, and the dispatch to them.

    Thread: any. Locks: a side's `filling`, before `_dispatching`, which admits one dispatch, join
    or change of phase at a time.
    """

    def __init__(
        self,
        phase: Phase,
        stores: dict[SideName, SideStore],
        attendant: Attendant,
        log_start: int = 0,
    ) -> None:
        """`stores` must have the side that serves reads."""
        # Constant after construction.
        self._attendant = attendant
        self._dispatching = Lock()
        #: Share of their time, from 0 to below 1, that dispatching threads wait, so that a filler
        #: can catch up.
        self.brake = 0.0
        self._dispatched_s = 0.0
        # Guarded by _dispatching; may be read without it.
        self.phase = phase
        #: Rises with each change of phase, even to the same phase.
        self.changes = 0
        self._sides = {name: Side(name, store) for name, store in stores.items()}
        self._held_from: dict[SideName, int] = {}  # see `hold_log`
        # Names deleted since the last dispatch, and the positions of their deletion.
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
        """Add a side that lags; a backfill brings it up and joins it. Replaces one with the same
        name, which must be closed."""
        with self._dispatching:
            side = Side(name, store)
            self._sides = {**self._sides, name: side}
            return side

    def detach(self, name: SideName) -> SideStore:
        """Remove a side that is not required. The caller must close it."""
        with self._dispatching:
            side = self._sides[name]
            self._sides = {other: each for other, each in self._sides.items() if other is not name}
        # A running filler ends first.
        with side.filling:
            return side.store

    def change_phase(self, make: Callable[[], Phase]) -> None:
        """Set the phase to what `make` returns, between two dispatches.

        `make` may write the state to disk; nothing is dispatched meanwhile. If it raises, nothing
        changes.
        """
        with self._dispatching:
            self.phase = make()
            self.changes += 1

    def join(self, name: SideName, fill_rest: Callable[[int, int], None]) -> None:
        """Include the side in live dispatch. `fill_rest(start, end)` must first dispatch the
        remaining part to it; everything else waits meanwhile."""
        side = self._sides[name]
        with side.filling, self._dispatching:
            fill_rest(side.store.dispatched_offset, self._dispatched)
            for name_at in self._ended:
                side.store.delete_topic(*name_at)
            side.joined = True

    def hold_log(self, name: SideName, start: int | None) -> None:
        """Keep the log from `start` on, because a filler of the side still has to read it; None to
        release it."""
        with self._dispatching:
            if start is None:
                self._held_from.pop(name, None)
            else:
                self._held_from[name] = start

    def still_needed(self) -> int:
        """Physical offset from which on the log must be kept for fillers."""
        held = self._held_from
        return min([self._dispatched, *held.values()])

    def is_required(self, side: Side) -> bool:
        """Whether it serves reads."""
        return side.name is self.phase.serving

    def _usable(self) -> list[Side]:
        """Sides that have not failed, the required one first, so that nothing else is done if it
        raises."""
        found = [side for side in self._sides.values() if side.failure is None]
        return sorted(found, key=lambda side: not self.is_required(side))

    def mark_stopped(self, name: SideName, reason: str) -> None:
        """Leave out a side that was stopped before the opening, until an operator resumes."""
        side = self._sides[name]
        side.failure = StoreError(reason)
        side.joined = False
        self._dispatched = self._least_joined()

    def stop_side(self, side: Side, error: BaseException) -> None:
        """Stop dispatching to the side. Dispatch continues without it."""
        if side.failure is not None:
            return
        side.failure = error
        side.joined = False
        self._held_from.pop(side.name, None)
        logger.error(
            "the %s side stopped at physical offset %d, the store continues without it: %s",
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
        """Run `action` on every usable side. A side that fails is stopped unless it is required.

        A busy side has not failed: if it is not required, `on_busy` is called. Without `on_busy`
        the error is raised, and the caller repeats everything, so the action must be repeatable.
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
        """See ConsumeQueueStore. Skips a side that is being filled: its filler will reach the
        record of the deletion."""
        with self._dispatching:
            if (topic, physical_offset) not in self._ended:
                self._ended.append((topic, physical_offset))
            self._on_joined(lambda store: store.delete_topic(topic, physical_offset))

    def _on_joined(self, action: Callable[[SideStore], None]) -> None:
        """Run `action` on joined sides. Must hold `_dispatching`. Raises what the required side
        raises."""
        action(self._sides[self.phase.serving].store)
        other = self._sides.get(self.phase.serving.other)
        if other is not None and other.joined:
            try:
                action(other.store)
            except StoreBusyError as error:
                # It lags from here on, until the backfill brings it up.
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
