"""`kvcq top`: what a running server is busy with, again and again.

`sample` asks the server, `figures` makes rates of two samples, `shown` lays them out for people,
`commands` goes on until Ctrl-C. It knows the server through the client alone.
"""

from server.cli.top.commands import top

__all__ = ["top"]
