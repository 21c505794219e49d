"""Adds a user to a stopped store, such as its first administrator."""

from __future__ import annotations

import os
from pathlib import Path

from server.access import Limits, users_of_stopped_store
from server.cli.on_disk import raising_command_errors
from server.process import prepare_to_open_stores
from server.settings import Sources


def add_to_store(
    data_dir: Path | None,
    key_file: Path | None,
    config_file: Path | None,
    name: str,
    *,
    admin: bool,
    secret: str | None,
    limits: dict[str, int],
) -> str:
    """Add the user to the store. Returns its secret. Paths that are None are read from
    `config_file`. Raises CommandError."""
    prepare_to_open_stores()
    flags: dict[str, object] = {"data_dir": data_dir, "key_file": key_file}
    given = {f"server.{name}": value for name, value in flags.items() if value}
    sources = Sources(config_file, given, {}, dict(os.environ))
    with raising_command_errors(data_dir or Path()):
        config = sources.read().config
    data_dir = config.data_dir
    segment_bytes = config.store.get("segment_bytes")
    locked = "a server uses this store: leave out --data to add the user on it"
    with (
        raising_command_errors(data_dir, locked=locked),
        users_of_stopped_store(data_dir, config.key_file, segment_bytes) as users,
    ):
        made = users.create(name, is_admin=admin, secret=secret, limits=Limits(**limits))
    return made.secret
