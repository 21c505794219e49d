"""What runs beside puts and reads: the threads and jobs of a store, and its checkpoints.

And the end of its life: what is drained, flushed and let go of, in that order.
"""

from store.upkeep.checkpoints import Checkpoints, DurableState
from store.upkeep.services import Services
from store.upkeep.upkeep import Upkeep

__all__ = [
    "Checkpoints",
    "DurableState",
    "Services",
    "Upkeep",
]
