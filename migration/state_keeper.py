"""The state of one open directory, in memory as it is on disk, and what to type next."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from migration.errors import IllegalStepError
from migration.state import Phase, write_state

if TYPE_CHECKING:
    from pathlib import Path

    from migration.state import MigrationState
    from store.clock import Clock

logger = logging.getLogger(__name__)


class StateKeeper:
    """Thread: any. Locks: `_lock`, innermost: nothing else is taken while it is held."""

    def __init__(self, root: Path, state: MigrationState, clock: Clock) -> None:
        self.root = root
        self._clock = clock
        self._lock = threading.Lock()
        # Guarded by _lock; read freely.
        self._state = state

    @property
    def state(self) -> MigrationState:
        return self._state

    def move(self, event: str, **changes: Any) -> MigrationState:  # noqa: ANN401 - fields
        """The state is changed, durably. Raises OSError; it is then unchanged."""
        with self._lock:
            state = self._state.moved(self._clock.now_ms(), event, **changes)
            write_state(self.root, state)
            self._state = state
            logger.info("migration: %s", event)
            return state

    def stop(self, reason: str) -> None:
        """Remember why a side was left behind; on a full disk only in memory.

        Nothing depends on the disk here: an opening tries the side again, and stops it again.
        """
        try:
            self.move(f"stopped: {reason}", stopped=reason)
        except OSError:
            logger.exception("the reason could not be written to migration.json")
            with self._lock:
                self._state = self._state.moved(
                    self._clock.now_ms(), f"stopped: {reason}", stopped=reason
                )

    def refuse(self, step: str, reason: str) -> IllegalStepError:
        """The error for a step that is not possible now; the caller raises it."""
        return IllegalStepError(step, self._state.phase.value, reason, next_command(self._state))


def next_command(state: MigrationState) -> str:
    """What an operator would type next to get on."""
    if state.stopped:
        return "kvcq migrate resume"
    if state.pending is not None:
        return "kvcq migrate status --wait"
    if blamed := state.blamed:
        return f"kvcq migrate resume --rebuild {blamed[0]} (with the service stopped)"
    if state.verified is not None and "log" in state.verified.sides.split():
        # Taken over by a program that did not tell the lives of a topic apart.
        if state.phase is Phase.FILES:
            return "kvcq migrate release"
        return "kvcq migrate rollback until the state is FILES, then kvcq migrate release"
    return {
        Phase.ADOPTING: "kvcq migrate start",
        Phase.FILES: "kvcq migrate start",
        Phase.DOUBLE_WRITE: "kvcq migrate verify",
        Phase.VERIFIED: "kvcq migrate cutover",
        Phase.ROCKSDB: "kvcq migrate finish (or kvcq migrate rollback)",
        Phase.FINISHED: "none: the migration is done (back: kvcq migrate rollback)",
    }[state.phase]
