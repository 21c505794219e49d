"""What puts the server together: it uses all other rooms, and the command line alone uses it.

`server` starts everything in order and stops it in reverse. `listening` makes the gRPC server and
its address; `serving` holds what is there while the store is open, and `write_watch` watches it.
`traces` is imported only where traces are asked for.
"""

from server.app.server import Listener, Server, StoreOpener, run_server

__all__ = ["Listener", "Server", "StoreOpener", "run_server"]
