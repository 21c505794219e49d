"""Assembles the server: it uses all other rooms, and is only used by the command line.

`server` starts everything in order, stops it in reverse, and notifies a `listener`. `listening`
creates the gRPC server and its address, `service_table` lists its services. `serving` holds what
exists while the store is open, and `write_watch` monitors it. `traces` is only imported if tracing
is on.
"""

from server.app.listener import Listener, StoreOpener
from server.app.server import Server, run_server

__all__ = ["Listener", "Server", "StoreOpener", "run_server"]
