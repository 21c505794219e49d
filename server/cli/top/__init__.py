"""`kvcq top`: the activity of a running server, refreshed until Ctrl-C.

`sample` queries the server through the client, `figures` computes rates from two samples, `shown`
formats them, `commands` has the command.
"""

from server.cli.top.commands import top

__all__ = ["top"]
