"""What files in deploy/ give the server, held against what it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from server.cli.main import main
from server.settings import Settings, Sources

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def given_to_serve(arguments: Sequence[str]) -> dict[str, object]:
    """Parameters of `kvcq serve`. Raises click's errors for what the command does not know."""
    name, *options = arguments
    assert name == "serve"
    with click.Context(main, info_name="kvcq") as context:
        command = main.get_command(context, name)
        assert command is not None
        return command.make_context(name, list(options), parent=context).params


def settings_of(environment: Mapping[str, str], file: Path | None = None) -> Settings:
    """As the server reads them. Raises InvalidArgumentError for what it would refuse."""
    return Sources(file, environment=environment).read()
