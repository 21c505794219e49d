"""Commands for the directory of a stopped store. `main` takes each out of its module."""

from server.cli.on_disk.store_errors import raising_command_errors, unusable

__all__ = ["raising_command_errors", "unusable"]
