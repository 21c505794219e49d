"""What runs beside puts and reads: the threads and jobs of a store, and its checkpoints.

What operators ask of it and see of it. And the end of its life: what is drained, flushed and
released, in that order.
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
