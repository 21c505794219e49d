"""Help of a group of commands: in working order, with the whole first sentence of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_WHOLE = 1000  # characters: no first sentence is as long


class Sections(click.Group):
    """Lists its commands in sections; one, in the order of the file, unless a subclass has more."""

    def sections(self) -> Mapping[str, Iterable[str]]:
        return {"Commands": self.commands}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for section in self.sections().values() for name in section]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in self.sections().items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                formatter.write_dl(
                    [(name, one.get_short_help_str(_WHOLE)) for name, one in commands if one]
                )
