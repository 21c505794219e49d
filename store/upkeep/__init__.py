"""Background work of a store: its threads and jobs, checkpoints, and what operators see.

Also its shutdown: what is drained, flushed and released, in that order.
"""

from store.upkeep.checkpoints import Checkpoints, DurableState
from store.upkeep.health import Health
from store.upkeep.maintenance import Maintenance
from store.upkeep.services import Services
from store.upkeep.upkeep import Upkeep

__all__ = [
    "Checkpoints",
    "DurableState",
    "Health",
    "Maintenance",
    "Services",
    "Upkeep",
]
