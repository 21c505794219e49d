"""Background scrubbing: the whole log once in a period, spread over most of it.

The position of a pass is a note of the store, so that a restart continues it. A cancelled pass is
abandoned; a failed one is retried an hour later, from its position.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from migration.errors import JobCancelledError
from server.errors import JobRunningError
from server.jobs.periodic_check import PeriodicCheck
from server.jobs.scrub import BYTES_PER_S, ScrubWork
from store.errors import StoreError, StoreFormatError

if TYPE_CHECKING:
    from kvcq.inspect import Scrub
    from migration.jobs import Job, Outcome
    from server.jobs.registry import Jobs
    from server.jobs.scrub import ScrubKind
    from store.base import Clock
    from store.message_store import MessageStore

logger = logging.getLogger(__name__)

_NAME = "scrub"
#: How often it writes down where it is.
_SAVE_S = 60.0
#: Part of the period in which a pass is to be done.
_SHARE = 0.9
#: A small log is not spread thinner than this: a pass over 10 GB takes three hours.
LEAST_BYTES_PER_S = 1 << 20
_AFTER_FAILURE_S = 3600.0


@dataclass
class PassState:
    """The stored state of a pass over the log. Offsets are physical."""

    began_ms: int
    position: int
    end: int
    is_over: bool = False
    faults: int = 0
    #: When the last pass over the whole log ended, 0 if none has; and its faults.
    completed_ms: int = 0
    completed_faults: int = 0


class ScrubSchedule(PeriodicCheck):
    """Starts passes when they are due.

    Thread: "scrub-schedule", which starts jobs; the job's own works and writes the state.
    """

    def __init__(
        self,
        store: MessageStore,
        jobs: Jobs,
        kind: ScrubKind,
        clock: Clock,
        *,
        period_s: float,
        bytes_per_s: int = BYTES_PER_S,
    ) -> None:
        """`period_s`: 0 for no scrubbing. `bytes_per_s`: the maximum rate of a pass."""
        super().__init__("scrub-schedule", period_s)
        # Constant after construction.
        self._store = store
        self._jobs = jobs
        self._kind = kind
        self._clock = clock
        self._bytes_per_s = bytes_per_s
        # Owned by the thread, and by the job while one runs.
        self._state = self._read()
        self._not_before_s = 0.0
        self._saved_s = 0.0

    def start_if_due(self) -> bool:
        """Start or continue a pass, if that is due. Returns whether it did."""
        if self._clock.monotonic_s() < self._not_before_s:
            return False
        state, now_ms = self._state, self._clock.now_ms()
        # The last pass may have begun in the future: the clock may have been wrong then.
        if state is None or (
            state.is_over and abs(now_ms - state.began_ms) >= self._period_s * 1000
        ):
            completed_ms, faults = (
                (0, 0) if state is None else (state.completed_ms, state.completed_faults)
            )
            end = self._store.queues.dispatched_offset
            if end <= self._store.log.start_offset:
                return False
            self._state = PassState(
                now_ms,
                self._store.log.start_offset,
                end,
                completed_ms=completed_ms,
                completed_faults=faults,
            )
        elif state.is_over:
            return False
        try:
            self._jobs.begin(self._kind, self._work, {}, scheduled=True)
        except JobRunningError:
            return False  # one by hand: it is looked again soon
        return True

    def statistics(self) -> dict[str, float]:
        """The progress of the pass, and the result of the last one."""
        state = self._state
        if state is None:
            return {}
        return {
            "scrub.pass_began_ms": state.began_ms,
            "scrub.pass_position": state.position,
            "scrub.pass_end": state.end,
            "scrub.pass_faults": state.faults,
            "scrub.completed_ms": state.completed_ms,
            "scrub.completed_faults": state.completed_faults,
        }

    # --- on the job's thread ---------------------------------------------------------------

    def _work(self, running: Job) -> Outcome:
        state = self._state
        assert state is not None, "a pass was begun"
        # Records that a power loss cut are not checked; a restored log may be shorter.
        end = min(state.end, self._store.queues.dispatched_offset)
        scrub = self._kind.scrub_from(state.position)
        faults = state.faults

        def saved(scrub: Scrub) -> None:
            state.position = scrub.position
            state.faults = faults + scrub.damaged_records + scrub.wrong_units
            if self._clock.monotonic_s() - self._saved_s >= _SAVE_S:
                self._save(state)

        try:
            found = ScrubWork(scrub, self._kind, end, self._rate, saved).run(running)
        except JobCancelledError:
            state.is_over = not self.is_stopping
            raise
        except Exception:
            self._not_before_s = self._clock.monotonic_s() + _AFTER_FAILURE_S
            raise
        else:
            state.is_over = True
            state.completed_ms, state.completed_faults = self._clock.now_ms(), state.faults
        finally:
            self._save(state)
        return found

    def _rate(self, left: int) -> float:
        """The rate that finishes the pass within its part of the period."""
        state = self._state
        assert state is not None
        due_ms = state.began_ms + self._period_s * 1000 * _SHARE
        left_s = max(1.0, (due_ms - self._clock.now_ms()) / 1000)
        return min(self._bytes_per_s, max(LEAST_BYTES_PER_S, left / left_s))

    # --- what is kept ----------------------------------------------------------------------

    def _read(self) -> PassState | None:
        try:
            data = self._store.notes.get(_NAME)
            return None if data is None else PassState(**json.loads(data))
        except (StoreFormatError, ValueError, TypeError) as error:
            logger.warning(
                "cannot read how far the verification of the log is, starting over: %s", error
            )
            return None

    def _save(self, state: PassState) -> None:
        self._saved_s = self._clock.monotonic_s()
        try:
            self._store.notes.put(_NAME, json.dumps(asdict(state)).encode())
        except (StoreError, OSError) as error:
            logger.warning("cannot save how far the verification of the log is: %s", error)
