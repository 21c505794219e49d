"""The command `kvcq`."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from server.cli.terminal import (
    EXIT_INTERRUPTED,
    EXIT_NOBODY_READS,
    InterruptedCommandError,
    Sections,
    accept_all_text,
    print_json_error,
)
from server.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_AS_JSON = "kvcq.as_json"

#: Sections of the help; in each, command to the module that has it. Only the one that is called
#: for is imported: all together take twice as long as most of them alone.
_SECTIONS = {
    "Messages": {
        "put": ".online.put",
        "consume": ".online.consume",
        "pull": ".online.messages",
        "query": ".online.messages",
        "get": ".online.messages",
    },
    "A running server": {
        "serve": ".serve",
        "topic": ".online.topics",
        "group": ".online.groups",
        "stats": ".online.stats",
        "top": ".top",
        "config": ".config",
        "job": ".online.jobs",
        "backup": ".backup",
        "user": ".access.users",
        "acl": ".access.rights",
        "bench": ".bench",
    },
    "A store on disk": {
        "check": ".on_disk.check",
        "dump": ".on_disk.dump",
        "repair": ".on_disk.repair",
        "restore": ".backup",
        "migrate": ".migration",
        "spark": ".spark",
    },
}
_MODULES = {name: module for section in _SECTIONS.values() for name, module in section.items()}


class Commands(Sections):
    """The commands. Ctrl-C ends each of them quietly, with an exit code of its own."""

    def sections(self) -> Mapping[str, Iterable[str]]:
        return _SECTIONS

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULES:
            return None
        command = getattr(import_module(_MODULES[cmd_name], __package__), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def main(self, *args: Any, **named: Any) -> Any:  # noqa: ANN401 - as click has it
        accept_all_text()
        return super().main(*args, **named)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Looked for before anything is parsed: wrong usage is told as JSON as well.
        ctx.meta[_AS_JSON] = "--json" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - as click has it
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            if not ctx.meta[_AS_JSON]:
                raise
            print_json_error(error)
            ctx.exit(error.exit_code)
        except BrokenPipeError:
            # What is buffered goes nowhere, or Python would complain of it at its end.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
            ctx.exit(EXIT_NOBODY_READS)
        except KeyboardInterrupt:
            if ctx.meta[_AS_JSON]:
                print_json_error(InterruptedCommandError("interrupted"))
            ctx.exit(EXIT_INTERRUPTED)
        except click.Abort as abort:  # click makes this of Ctrl-C at a question
            if isinstance(abort.__context__, KeyboardInterrupt):
                ctx.exit(EXIT_INTERRUPTED)
            raise


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(VERSION, prog_name="kvcq")
def main() -> None:
    """A message store: RocketMQ's commit log, its consume queues in RocksDB, over gRPC.

    Exit codes: 0 success, 1 findings or a refusal, 2 wrong usage, 3 cannot connect, 130 Ctrl-C,
    141 nobody reads the output any more.
    """
