"""Commands for a running server, which use only the client.

Exports `connection` and `start_job` for other commands. `main` imports each module on demand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.cli.online.connection import (
    command_at,
    command_error,
    connect,
    on_server,
    server_options,
)
from server.cli.online.security import credentials_of, read_secret, security_options, tls_of

if TYPE_CHECKING:
    from server.cli.online.jobs import start_job

__all__ = [
    "command_at",
    "command_error",
    "connect",
    "credentials_of",
    "on_server",
    "read_secret",
    "security_options",
    "server_options",
    "start_job",
    "tls_of",
]


def __getattr__(name: str) -> object:
    """Import `start_job` on first use: most commands do not need its module."""
    if name != "start_job":
        raise AttributeError(name)
    from server.cli.online.jobs import start_job

    return start_job
