"""The threads of one store: started together, and stopped in the order that lets each finish."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from store.derive import KeptBytes, QueueRepair, ReputService
    from store.jobs import Jobs
    from store.log import FlushService, PageAhead, RetentionService
    from store.state import Snapshots
    from store.upkeep.upkeep import Upkeep

_MAINTAIN_S = 1.0
_RECLAIM_S = 30.0


@dataclass(frozen=True)
class Services:
    """The background services of a store."""

    flush: FlushService
    reput: ReputService
    retention: RetentionService
    jobs: Jobs
    page_ahead: PageAhead
    repair: QueueRepair
    kept_bytes: KeptBytes
    snapshots: Snapshots

    def start(self, upkeep: Upkeep) -> None:
        self.flush.start()
        self.page_ahead.start()
        self.reput.start()
        self.retention.schedule(self.jobs)
        self.jobs.add("maintain", _MAINTAIN_S, upkeep.maintain)
        self.jobs.add("reclaim", _RECLAIM_S, upkeep.reclaim)
        self.jobs.add("snapshots", _MAINTAIN_S, self.snapshots.look)
        self.jobs.add("kept bytes", _MAINTAIN_S, self.kept_bytes.run)
        self.jobs.start()

    def stop(self) -> None:
        """Stop all. The last flush comes before the end of dispatch, which in SYNC mode waits for
        it."""
        self.page_ahead.stop()
        self.jobs.stop()
        self.repair.stop()
        self.flush.stop()
        self.reput.stop()
