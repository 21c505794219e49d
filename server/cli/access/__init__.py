"""Commands for users and what they may do: of a server, and the first one of a stopped store.

`main` takes each out of its module.
"""

from server.cli.access.documents import document

__all__ = [
    "document",
]
