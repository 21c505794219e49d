"""Commands for the directory of a stopped store. `main` takes each out of its module."""

from server.cli.on_disk.store_errors import unusable

__all__ = [
    "unusable",
]
