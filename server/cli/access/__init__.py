"""Commands for users and their rights. `main` imports each command's module on demand."""

from server.cli.access.documents import document

__all__ = [
    "document",
]
