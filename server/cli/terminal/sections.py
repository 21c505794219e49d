"""Help for a group of commands: in order of use, with the whole first sentence of each command."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_WHOLE = 1000  # characters, more than any first sentence has


class Sections(click.Group):
    """Lists its commands in sections: by default a single one, in the order of the file."""

    def sections(self) -> Mapping[str, Iterable[str]]:
        return {"Commands": self.commands}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for section in self.sections().values() for name in section]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if args and args[0] not in names and not args[0].startswith("-"):
            near = get_close_matches(args[0], names, 1, cutoff=0.5)
            known = "" if near else f"; there are {', '.join(names)}"
            meant = f"did you mean: {_typed(ctx)} {near[0]}" if near else f"see: {_typed(ctx)} -h"
            ctx.fail(f"No such command {args[0]!r}{known}; {meant}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in self.sections().items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                formatter.write_dl(
                    [(name, one.get_short_help_str(_WHOLE)) for name, one in commands if one]
                )


def _typed(ctx: click.Context) -> str:
    """The command group as the user types it: `kvcq` and its names."""
    names: list[str] = []
    here: click.Context | None = ctx
    while here is not None and here.parent is not None:
        names.insert(0, here.info_name or "")
        here = here.parent
    return " ".join(["kvcq", *names])
