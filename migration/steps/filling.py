"""The job that brings up whatever lags: sides, and then the names that a side is gaining."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from migration.errors import JobCancelledError
from migration.fill import Filler
from migration.state import BEFORE_CUTOVER, Routes, SideName, may_gain
from migration.steps.migration import taken_back
from store.errors import StoreBusyError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from migration.fill import GainedPart
    from migration.jobs import Job
    from migration.sides import Side
    from migration.state import Target
    from migration.steps.migration import Migration

_BUSY_WAIT_S = 0.02


def fill(on: Migration, job: Job) -> None:
    """Every side is joined, and a change of routes that was under way is done.

    Raises JobCancelledError, and what a side raises; it is then left behind.
    """
    filler = Filler(on.store, on.double, job)
    _catch_up(on, filler)
    target = on.state.pending
    if target is None:
        return
    routes = Routes(target.phase, target.routing)
    try:
        parts = [
            filler.gain(name, routes)
            for name in SideName
            if may_gain(on.double.routes, routes, name)
        ]
        _apply(on, target, filler, parts, job)
    except JobCancelledError:
        raise
    except Exception as error:
        on.keeper.stop(error)
        raise
    finally:
        filler.let_go()


def _catch_up(on: Migration, filler: Filler) -> None:
    """Sides that lag are joined again; none that failed."""
    for side in on.double.sides():
        if not side.joined and side.failure is None:
            with _stopping(on, side):
                filler.catch_up(side.name)


def _apply(
    on: Migration, target: Target, filler: Filler, parts: Sequence[GainedPart], job: Job
) -> None:
    """What was gained is filled to the dispatch boundary, and the routes change there."""

    def change(boundary: int) -> Routes:
        routes = Routes(target.phase, target.routing)
        for name in SideName:
            if routes.required(name) and not on.double.is_joined(name):
                side = on.double.side(name)
                if side is not None and side.failure is not None:  # waiting does not help
                    raise StoreError(f"the {name.value} side failed: {side.failure}")
                raise StoreBusyError(f"the {name.value} side lags")
        for part in parts:
            part.finish(boundary)
            # They lie below what a replay begins with: once the state says that they are there, no
            # crash may take them.
            part.side.store.flush()
        state = on.state
        kept = target.routing == state.routing and target.phase not in BEFORE_CUTOVER
        event = f"routes changed, now {target.phase.value}"
        return on.moved(
            event if kept else taken_back(event, state),
            target.phase,
            target.routing,
            pending=None,
            verified=state.verified if kept else None,
        )

    while True:
        try:
            with ExitStack() as held:
                for part in parts:
                    held.enter_context(part.side.filling)
                on.double.change_routes(change)
            for part in parts:
                job.report(part.at, part.at, part.finished_rows)
            return
        except StoreBusyError:
            job.pause(_BUSY_WAIT_S)
            _catch_up(on, filler)


@contextmanager
def _stopping(on: Migration, side: Side) -> Iterator[None]:
    """What goes wrong inside leaves a side behind that nothing is read from."""
    try:
        yield
    except JobCancelledError:
        raise
    except Exception as error:
        if on.double.routes.required(side.name):
            on.keeper.stop(error)
        else:
            on.double.stop_side(side, error)
        raise
