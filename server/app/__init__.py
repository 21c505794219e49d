"""What puts the server together: it uses all other rooms, and the command line alone uses it.

`server` starts everything in order and stops it in reverse, and tells a `listener`. `listening`
makes the gRPC server and its address, `service_table` says which services it has. `serving` holds
what is there while the store is open, and `write_watch` watches it. `traces` is imported only where
traces are asked for.
"""

from server.app.listener import Listener, StoreOpener
from server.app.server import Server, run_server

__all__ = ["Listener", "Server", "StoreOpener", "run_server"]
