"""Commands that talk to a running server, through the client alone.

The door is that of `connection`, for other commands with `--server`; `main` takes each command out
of its module, and none before it is called for.
"""

from server.cli.online.connection import command_at, connect, on_server, server_option

__all__ = [
    "command_at",
    "connect",
    "on_server",
    "server_option",
]
