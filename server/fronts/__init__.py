"""Front processes: they serve gRPC for the process that has the store open.

A call costs gRPC many times what it costs the store, and one Python process uses one core. So with
`server.workers` above 1 that many fronts (`front`) share the port. Each passes its calls, as bytes,
to the owner of the store over a pair of Unix sockets (`frames`). The owner serves them like calls
of its own (`calls`), and manages the fronts (`fleet`, `address`).

A front knows nothing of the store, and neither does this room: it must start fast and stay small.
"""

from server.fronts.calls import FrontMethod
from server.fronts.fleet import Fronts

__all__ = ["FrontMethod", "Fronts"]
