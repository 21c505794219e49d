"""Environment variables that gRPC reads when first imported, set unless the user has set them.

They have no effect in a program that imports `grpc` before this package.

gRPC's fork handlers are turned off: with them, a forked child may crash whatever it does.

gRPC has two ways to wait for sockets. With its default, each message passes through three threads;
with the older one the thread that wakes the event loop waits for the socket itself, which halves
the time and the processor time of a message on an open stream. The older one is chosen for the
releases in `MEASURED`. It is not known what later releases do with the switch, so they keep their
default.
"""

from __future__ import annotations

import os
from importlib.metadata import version

#: Releases of grpcio, as major and minor version, that were measured and tested both ways.
MEASURED = ("1.85",)

#: Whether the installed release is one of them, and KVCQ_PUBLIC_GRPC is not set.
IS_MEASURED = (
    version("grpcio").rpartition(".")[0] in MEASURED and "KVCQ_PUBLIC_GRPC" not in os.environ
)

ENVIRONMENT = {"GRPC_ENABLE_FORK_SUPPORT": "0"}
if IS_MEASURED:
    ENVIRONMENT["GRPC_EXPERIMENTS"] = "-event_engine_client,-event_engine_listener"
for _name, _value in ENVIRONMENT.items():
    os.environ.setdefault(_name, _value)
