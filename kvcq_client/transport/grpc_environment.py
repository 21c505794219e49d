"""What gRPC reads from the environment when it is first imported, set where nobody else has set it.

A program that imports `grpc` before us has it as it comes.

Its own fork handlers end one child in seven with a segmentation fault, whatever the child does:
they are off.

It waits for sockets in one of two ways. With the newer one, which it takes by itself, every
message goes from the thread that waits for the socket to one that works, and from there to the one
that tells the event loop. With the older one the last of these waits for the socket: a message on
an open stream comes back in half the time, for half of the processor time. The older one is
chosen for the releases in `MEASURED`; what a later one does with the switch is not known, and it
is left as it comes.
"""

from __future__ import annotations

import os
from importlib.metadata import version

#: Releases of grpcio, by their first two numbers, that were measured and tested both ways.
MEASURED = ("1.85",)

#: Whether the installed release is one of them, and the user has not chosen public calls only.
IS_MEASURED = (
    version("grpcio").rpartition(".")[0] in MEASURED and "KVCQ_PUBLIC_GRPC" not in os.environ
)

ENVIRONMENT = {"GRPC_ENABLE_FORK_SUPPORT": "0"}
if IS_MEASURED:
    ENVIRONMENT["GRPC_EXPERIMENTS"] = "-event_engine_client,-event_engine_listener"
for _name, _value in ENVIRONMENT.items():
    os.environ.setdefault(_name, _value)
