"""An open store with a migration, used by all steps and jobs."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from migration.broker_config import write_back
from migration.state import Phase, SideName
from store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from migration.broker_config import WrittenBack
    from migration.errors import IllegalStepError
    from migration.sides import DoubleQueueStore, Side, SideOpener, SideStore
    from migration.state import MigrationState, StateKeeper
    from store.base import Clock
    from store.message_store import MessageStore

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Migration:
    """The parts of an open migration. Thread: any. Its results about the sides may be outdated
    unless dispatch is held."""

    store: MessageStore
    double: DoubleQueueStore
    keeper: StateKeeper
    opener: SideOpener
    clock: Clock

    @property
    def state(self) -> MigrationState:
        return self.keeper.state

    @property
    def unopened(self) -> str:
        """The message for a side that could not be opened, with the next step; "" if all are
        open."""
        names = " and ".join(name.value for name in self.double.absent)
        return names and (
            f"the {names} side could not be opened: fix the cause, and restart the service"
        )

    @property
    def waits_for(self) -> str:
        """Why a step must wait; "" if both sides are joined and no phase change is pending."""
        state = self.state
        if state.stopped:
            return f"it was stopped ({state.stopped})"
        if state.pending is not None:
            return "a change is under way"
        if self.unopened:
            return self.unopened
        for side in self.double.sides():
            if not side.joined:
                left = self.double.dispatched_offset - side.store.dispatched_offset
                return f"the {side.name.value} side is {left} bytes of log behind"
        return ""

    def refuse(self, step: str, reason: str = "") -> IllegalStepError:
        """The error for a step that is not possible now, for the caller to raise."""
        return self.keeper.refuse(step, reason or self.waits_for or "a side is not ready")

    def moved(
        self,
        event: str,
        phase: Phase,
        **changes: Any,  # noqa: ANN401 - fields of the state
    ) -> Phase:
        """Write the state to disk. Returns its phase."""
        return self.keeper.move(event, phase=phase, **changes).phase

    def drop(self, name: SideName) -> None:
        """Take the side out of use and remove it, even if it could not be opened."""
        if self.double.side(name) is not None:
            self.double.detach(name).close()
        self.opener.remove(name)
        self.double.is_gone(name)

    def reopen(self, side: Side) -> Side:
        """Reopen a failed side: the failure may only affect its open files, like a failed fsync.
        The side becomes empty if the log no longer has the records that it lacks. Returns what
        replaces it. Raises what opening raises; the side then stays failed."""
        try:
            side.close()
        except (StoreError, OSError):
            logger.exception("the %s side was not closed in order", side.name.value)
        fresh = self.opener.open(side.name, self.state)
        if fresh.dispatched_offset < self.store.log.start_offset:
            # Start empty: files cannot have a gap, and RocksDB's rows below a gap are of no use.
            fresh.close()
            self.opener.remove(side.name)
            fresh = self.opener.open(side.name, self.state)
        with _closed_if_raised(fresh):
            blamed = side.name.value in self.state.blamed
            if fresh.dispatched_offset == 0 and (blamed or self.state.phase is Phase.VERIFIED):
                event = f"rebuilt: {side.name.value}; the verification is invalidated"
                changes = self.state.rebuilt(side.name.value)
                self.double.change_phase(lambda: self.moved(event, **changes))
        return self.double.attach(side.name, fresh)

    def give_config_back(self) -> WrittenBack | None:
        """Write topics and committed offsets to RocketMQ's `config/`.

        Raises StoreFormatError, OSError, EngineFailedError.
        """
        written = write_back(
            self.keeper.root,
            self.store.tables,
            self.store.groups.every_window,
            self.state.config,
            self.clock.now_ms(),
        )
        if written is not None:
            self.keeper.move("; ".join(written.lines()))
        return written


@contextmanager
def _closed_if_raised(store: SideStore) -> Iterator[None]:
    try:
        yield
    except BaseException:
        store.close()
        raise


def taken_back(event: str, state: MigrationState) -> str:
    """The event, with a note that the verification was discarded."""
    if state.verified is None:
        return event
    return f"{event}; the verification is invalidated: verify again before the next cutover"
