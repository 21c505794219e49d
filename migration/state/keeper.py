"""The state of one open directory, in memory and on disk, and the next step."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from migration.errors import IllegalStepError
from migration.next_step import NextStep
from migration.state.phase import Phase
from migration.state.state import write_state
from store.base import Lock

if TYPE_CHECKING:
    from pathlib import Path

    from migration.state.state import MigrationState
    from store.base import Clock

logger = logging.getLogger(__name__)


class StateKeeper:
    """Has the state, and changes it durably. Thread: any. Locks: `_lock`, innermost."""

    def __init__(self, root: Path, state: MigrationState, clock: Clock) -> None:
        self.root = root
        self._clock = clock
        self._lock = Lock()
        # Guarded by _lock; may be read without it.
        self._state = state

    @property
    def state(self) -> MigrationState:
        return self._state

    def move(self, event: str, **changes: Any) -> MigrationState:  # noqa: ANN401 - fields
        """Change the state durably, and add the event to its history. Raises OSError; the state is
        then unchanged."""
        with self._lock:
            state = self._state.moved(self._clock.now_ms(), event, **changes)
            write_state(self.root, state)
            self._state = state
            logger.info("migration: %s", event)
            return state

    def stop(self, why: str | BaseException, *, unopened: str = "") -> None:
        """Record why a side was stopped; on a full disk only in memory. That is enough, because the
        next opening tries the side again, and stops it again.

        An error without a message is recorded by its class, so the reason is never empty.
        `unopened`: the side, if it cannot be opened.
        """
        reason = str(why) or repr(why)
        try:
            self.move(f"stopped: {reason}", stopped=reason, unopened=unopened)
        except OSError:
            logger.exception("the reason could not be written to migration.json")
            with self._lock:
                self._state = self._state.moved(
                    self._clock.now_ms(), f"stopped: {reason}", stopped=reason, unopened=unopened
                )

    def refuse(self, step: str, reason: str) -> IllegalStepError:
        """The error for a step that is not possible now, for the caller to raise."""
        return IllegalStepError(step, self._state.phase.value, reason, next_step(self._state))


def next_step(state: MigrationState) -> NextStep:
    if state.stopped:
        return NextStep("resume")
    if state.pending is not None:
        return NextStep("status", ("--wait",))
    if blamed := state.blamed:
        return NextStep(
            "resume", ("--rebuild", blamed[0]), hint="verify again afterwards", stopped_only=True
        )
    return _AHEAD[state.phase]


_AHEAD = {
    Phase.ADOPTING: NextStep("start"),
    Phase.FILES: NextStep("start"),
    Phase.DOUBLE_WRITE: NextStep("verify"),
    Phase.VERIFIED: NextStep("cutover"),
    Phase.ROCKSDB: NextStep(
        "finish", hint="finish removes the files; before that, rollback returns to them at once"
    ),
    Phase.FINISHED: NextStep(
        hint="the migration is done; rollback would rebuild the files from the log"
    ),
}
