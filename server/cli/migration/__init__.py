"""`kvcq migrate`: its commands, what they work on, and what they show.

`target` is what a command works on: `local` a stopped store, `remote` a running one. `commands`
takes the steps, `shown` prints what they led to. Uses migration/ and the generated code.
"""

from server.cli.migration.commands import migrate

__all__ = ["migrate"]
