"""The command `kvcq`."""

from __future__ import annotations

import os
import sys
from difflib import SequenceMatcher
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from server.cli.terminal import (
    EXIT_INTERRUPTED,
    EXIT_NOBODY_READS,
    CommandError,
    InterruptedCommandError,
    Sections,
    accept_all_text,
    print_json_error,
)
from server.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_AS_JSON = "kvcq.as_json"
#: Least similarity of two names (difflib) if one is a misspelling of the other.
_MISSPELT = 0.8

#: The commands in the help, by section: module of each command, and a description. A module is only
#: imported when its command is called, because importing all would load the whole server.
_SECTIONS = {
    "Messages": {
        "put": (".online.put", "Store a message, or one for each line of standard input."),
        "consume": (
            ".online.consume",
            "Read all queues of a topic, from a group's committed offsets if one is named.",
        ),
        "pull": (".online.messages", "Read some messages of a topic or a queue."),
        "query": (".online.messages", "Find messages by key."),
        "get": (".online.messages", "Show one message by its id."),
        "trace": (".online.trace", "Show who received a message, and what became of it."),
    },
    "A running server": {
        "serve": (".serve", "Serve the store in a directory until Ctrl-C."),
        "topic": (".online.topics", "Create, list, describe, update and delete topics."),
        "group": (".online.groups", "Create, show, change, reset, pause and delete groups."),
        "dlq": (".online.dead_letters", "Show, redrive and delete dead letters."),
        "lite": (".online.lite", "Create, list and delete lite topics, one for each session."),
        "timers": (".online.timers", "Show and recall delayed messages."),
        "tran": (".online.transactions", "Show, commit and roll back open transactions."),
        "stats": (".online.stats", "Show the server's counters and levels."),
        "top": (".top", "Watch rates, busy topics and lagging groups until Ctrl-C."),
        "config": (".config", "Show, check, reload and import settings."),
        "job": (".online.jobs", "Start, list and cancel long work, such as verification."),
        "backup": (".backup", "Create, list, verify and prune backups."),
        "user": (".access.users", "Manage users and their secrets."),
        "acl": (".access.rights", "Grant, revoke and list the rights of users."),
        "bench": (".bench", "Load-test a server or a store, and verify every message."),
    },
    "A store on disk": {
        "check": (".on_disk.check", "Verify a stopped store."),
        "dump": (".on_disk.dump", "Show the rows of a store's files."),
        "repair": (".on_disk.repair", "Rebuild queues of a stopped store from its log."),
        "restore": (".backup", "Restore a backup into a new directory."),
        "migrate": (".migration", "Move a RocketMQ store to RocksDB step by step, and back."),
        "spark": (".spark", "Run large jobs over a store on Spark."),
    },
}
_MODULES = {name: one[0] for section in _SECTIONS.values() for name, one in section.items()}


class Commands(Sections):
    """The commands. Ctrl-C ends each one without a traceback, with its own exit code."""

    def sections(self) -> Mapping[str, Iterable[str]]:
        return _SECTIONS

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, does) for name, (_, does) in commands.items()])

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
        # Read before parsing, because usage errors are reported as JSON, too.
        ctx.meta[_AS_JSON] = "--json" in args
        return super().parse_args(ctx, args)

    def _invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - as click has it
        """Raises CommandError for a file that cannot be read or written, such as an output on a
        full disk."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except OSError as error:
            _discard_output()
            what = error.filename or "standard input or output"
            raise CommandError(f"{what}: {error.strerror or error}") from error

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - as click has it
        try:
            return self._invoke(ctx)
        except click.ClickException as error:
            told = _misspelt(error) if isinstance(error, click.NoSuchOption) else error
            if not ctx.meta[_AS_JSON]:
                raise told from error.__cause__
            print_json_error(told)
            ctx.exit(told.exit_code)
        except BrokenPipeError:
            _discard_output()
            ctx.exit(EXIT_NOBODY_READS)
        except KeyboardInterrupt:
            if ctx.meta[_AS_JSON]:
                print_json_error(InterruptedCommandError("interrupted"))
            ctx.exit(EXIT_INTERRUPTED)
        except click.Abort as abort:  # raised by click for Ctrl-C at a prompt
            if isinstance(abort.__context__, KeyboardInterrupt):
                ctx.exit(EXIT_INTERRUPTED)
            raise


def _discard_output() -> None:
    """Discard buffered output that cannot be written, or Python would report it on exit."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _misspelt(error: click.NoSuchOption) -> click.NoSuchOption:
    """The error with only those proposals that the name may be a misspelling of. click also
    proposes options that mean something else, such as --files for --yes."""
    name = error.option_name
    near = [
        one
        for one in error.possibilities or ()
        if one.startswith(name) or SequenceMatcher(None, name, one).ratio() >= _MISSPELT
    ]
    return click.NoSuchOption(name, possibilities=near, ctx=error.ctx)


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(VERSION, prog_name="kvcq")
def main() -> None:
    """A message store: RocketMQ's commit log, its consume queues in RocksDB, over gRPC.

    Exit codes: 0 success, 1 findings or a refusal, 2 wrong usage, 3 cannot connect, 130 Ctrl-C, 141
    the reader of the output has gone.
    """
