"""The verification job, and the effect of its result on the migration's state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from migration.errors import JobCancelledError, VerificationError
from migration.jobs import Outcome
from migration.state import BrokenOff, Phase, VerifyResult
from migration.steps.verify import Verification
from store.errors import StoreBusyError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvcq.inspect import Finding
    from migration.jobs import Job
    from migration.steps.migration import Migration
    from migration.steps.verify import Verified


class Verifying:
    """Verifications of one open store, one at a time."""

    def __init__(self, on: Migration) -> None:
        self._on = on
        #: Findings of the last verification in this process, at most 10,000.
        self.differences: Sequence[Finding] = ()

    def run(self, job: Job, key_every: int) -> Outcome:
        on = self._on
        compared = on.double.changes
        try:
            try:
                found = Verification(on.store, on.double, job, key_every).run()
            except (JobCancelledError, StoreBusyError):
                raise
            except Exception as error:
                self._failed(job, compared, error)
                raise
            self._ended(job, compared, found)
            return Outcome(
                f"compared {found.compared_units:,} units below {found.cut_offset:,}: "
                f"{found.difference_count:,} differences",
                {"units": found.compared_units, "differences": found.difference_count},
            )
        except (JobCancelledError, StoreBusyError) as error:
            # These errors do not mean that stored data is wrong.
            on.keeper.move(f"verification aborted: {error}", broken_off=BrokenOff(str(error)))
            raise

    def _ended(self, job: Job, compared: int, found: Verified) -> None:
        on = self._on
        result = VerifyResult(
            found.cut_offset,
            found.compared_units,
            found.difference_count,
            on.clock.now_ms(),
            " ".join(sorted({each.side for each in found.differences})),
        )
        event = f"verified below {found.cut_offset}: {found.difference_count} differences"

        def settle() -> Phase:
            phase = on.state.phase
            if found.difference_count == 0 and phase is Phase.DOUBLE_WRITE and not on.waits_for:
                phase = Phase.VERIFIED
            elif found.difference_count and phase is Phase.VERIFIED:
                phase = Phase.DOUBLE_WRITE
            return on.moved(event, phase, verified=result, broken_off=None)

        self._at_boundary(job, compared, settle)
        self.differences = found.differences

    def _failed(self, job: Job, compared: int, error: Exception) -> None:
        """Discard an earlier result, which no longer applies."""
        event = f"verification aborted: {error}"
        unread = error.side if isinstance(error, VerificationError) else ""

        def take_back() -> Phase:
            phase, changes = self._on.state.phase, dict[str, Any]()
            if phase in (Phase.DOUBLE_WRITE, Phase.VERIFIED):
                phase, changes["verified"] = Phase.DOUBLE_WRITE, None
            broken_off = BrokenOff(str(error), unread)
            return self._on.moved(event, phase, broken_off=broken_off, **changes)

        self._at_boundary(job, compared, take_back)
        self.differences = ()

    def _at_boundary(self, job: Job, compared: int, make: Callable[[], Phase]) -> None:
        """Set the state to what `make` returns, if the verification still applies.

        Raises JobCancelledError, and StoreBusyError if a step has changed the phase.
        """

        def change() -> Phase:
            job.check()
            if self._on.double.changes != compared:
                raise StoreBusyError("the state changed meanwhile: verify again")
            return make()

        self._on.double.change_phase(change)
