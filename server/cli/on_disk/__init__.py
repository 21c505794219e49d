"""Commands for the directory of a stopped store. `main` imports each module on demand."""

from server.cli.on_disk.store_errors import raising_command_errors, unusable

__all__ = ["raising_command_errors", "unusable"]
