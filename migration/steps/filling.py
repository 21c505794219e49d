"""The job that brings up lagging sides, and then completes a change of phase."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from migration.errors import JobCancelledError
from migration.fill import Filler
from migration.state import SideName
from store.errors import StoreBusyError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from migration.jobs import Job
    from migration.sides import Side
    from migration.state import Phase
    from migration.steps.migration import Migration

_BUSY_WAIT_S = 0.02


def fill(on: Migration, job: Job) -> None:
    """Join every side, and complete a pending change of phase. Raises JobCancelledError, and what a
    side raises, which is then stopped."""
    filler = Filler(on.store, on.double, job)
    _catch_up(on, filler)
    target = on.state.pending
    if target is None:
        return
    try:
        _apply(on, target, filler, job)
    except JobCancelledError:
        raise
    except Exception as error:
        on.keeper.stop(error)
        raise


def _catch_up(on: Migration, filler: Filler) -> None:
    """Join lagging sides again, except failed ones."""
    for side in on.double.sides():
        if not side.joined and side.failure is None:
            current = side
            if 0 < side.store.dispatched_offset < on.store.log.start_offset:
                with _stopping(on, side):
                    # It begins empty: what was deleted in the part that is gone is not known.
                    current = on.reopen(side)
            with _stopping(on, current):
                filler.catch_up(side.name)


def _apply(on: Migration, target: Phase, filler: Filler, job: Job) -> None:
    """Change to the target phase between two dispatches, once its sides are joined."""

    def change() -> Phase:
        for name in filter(target.uses, SideName):
            if not on.double.is_joined(name):
                side = on.double.side(name)
                if side is not None and side.failure is not None:  # waiting would not help
                    raise StoreError(f"the {name.value} side failed: {side.failure}")
                raise StoreBusyError(f"the {name.value} side lags")
        return on.moved(f"now {target.value}", target, pending=None)

    while True:
        try:
            on.double.change_phase(change)
            return
        except StoreBusyError:
            job.pause(_BUSY_WAIT_S)
            _catch_up(on, filler)


@contextmanager
def _stopping(on: Migration, side: Side) -> Iterator[None]:
    """Stop the side if the block raises, unless the side serves reads."""
    try:
        yield
    except JobCancelledError:
        raise
    except Exception as error:
        if on.double.is_required(side):
            on.keeper.stop(error)
        else:
            on.double.stop_side(side, error)
        raise
