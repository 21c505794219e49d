"""Commands that talk to a running server, through the client alone.

The door is that of `connection`, for other commands with `--server`, and what starts a job; `main`
takes each command out of its module, and none before it is called for.
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
    """`start_job` on first use: no other command needs its module."""
    if name != "start_job":
        raise AttributeError(name)
    from server.cli.online.jobs import start_job

    return start_job
