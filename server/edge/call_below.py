"""An answer goes out with the reading of the next request: gRPC is handed both at once.

gRPC tells of the end of each operation by a thread, which wakes the event loop. Of the end of a
write nobody has any use, and most answers are followed by a request: told of both at once, the loop
is woken half as often. It is below gRPC's public calls, and used with the releases that were
measured.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from kvcq_client.transport import cygrpc

if TYPE_CHECKING:
    from server.edge.call_info import Context


def call_below(context: Context) -> object | None:
    """gRPC's own object of the call, which its context has and does not give out. None: there is
    no such, as behind a front."""
    if cygrpc is None:
        return None
    return next((x for x in gc.get_referents(context) if isinstance(x, cygrpc.RPCState)), None)
