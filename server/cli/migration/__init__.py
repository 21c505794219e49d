"""`kvcq migrate`.

`target` is the interface of a store: `local` is a stopped one, `remote` a running one. `commands`
runs the steps, `shown` prints their results.
"""

from server.cli.migration.commands import migrate

__all__ = ["migrate"]
