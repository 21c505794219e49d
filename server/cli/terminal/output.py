"""Prints results: tables for people, JSON for programs.

Results go to standard output, everything else to standard error, so that a pipe only gets results.
With --json a result is one JSON document in one line, or one line for each of many messages or
rows; an error is one JSON object, the last line of standard error, instead of the text for people.
Exit codes: 0 success, 1 findings or a rejection, 2 wrong usage, 3 cannot connect, 130 Ctrl-C, 141
the reader of the output has gone.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Self, TextIO, TypeVar

import click
from rich.table import Table

from server.cli.terminal.screen import Screen, escape, has_all_text, visible_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

T = TypeVar("T")

EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_CANNOT_CONNECT = 3
EXIT_INTERRUPTED = 130  # as in a shell: 128 plus the number of SIGINT
EXIT_NOBODY_READS = 141  # 128 plus the number of SIGPIPE

console = Screen()
notes = Screen(stderr=True)

json_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON instead of a table."
)


class CommandError(click.ClickException):
    """Ends the command, with an error message and the next step.

    The next step is `command`, which can be pasted into a shell, or the sentence `hint`, or both.
    """

    exit_code = EXIT_REFUSED
    #: The code in JSON if the error has no other.
    default_code = "REFUSED"

    def __init__(
        self,
        message: str,
        hint: str | None = None,
        *,
        command: str | None = None,
        code: str = "",
        field: str = "",
    ) -> None:
        """`code`: a reason of the server's error table, or a similar one. `field`: the field of a
        request, or the option, that is invalid."""
        super().__init__(message)
        self.hint = hint or None
        self.command = command or None
        self.code = code or self.default_code
        self.field = field

    def saying(self, message: str, *, hint: str | None = None, field: str | None = None) -> Self:
        """The same error with another text, and with another hint and field if given."""
        return type(self)(
            message,
            self.hint if hint is None else hint,
            command=self.command,
            code=self.code,
            field=self.field if field is None else field,
        )

    def show(self, file: object = None) -> None:
        notes.print(f"[bold red]error:[/] {escape(self.message)}", soft_wrap=True)
        print_next(self.command, self.hint)


class BadRequestError(CommandError):
    """An invalid value, rejected by the server or by this command."""

    exit_code = EXIT_USAGE
    default_code = "INVALID_ARGUMENT"


class CannotConnectError(CommandError):
    """The server cannot be reached, or does not accept calls now."""

    exit_code = EXIT_CANNOT_CONNECT
    default_code = "CANNOT_CONNECT"


class InterruptedCommandError(CommandError):
    """Ended by Ctrl-C. The message says whether work on the server continues."""

    exit_code = EXIT_INTERRUPTED
    default_code = "INTERRUPTED"


def say(text: str) -> None:
    """Print a line for people on standard error, without markup and line breaks."""
    notes.print(text, markup=False, highlight=False, soft_wrap=True)


def print_next(command: str | None, hint: str | None) -> None:
    """Print the next step for people: a command for a shell, and a sentence. Either may be
    missing."""
    for name, text in (("next:", command), ("hint:", hint)):
        if text:
            notes.print(f"[bold]{name}[/]  {escape(text)}", highlight=False, soft_wrap=True)


def ask(question: str, without: str) -> None:
    """Ask the user to confirm. Returns only if the user does. Raises CommandError if there is no
    terminal to answer on; `without` is the command that does not ask."""
    try:
        click.confirm(question, abort=True, err=True)
    except click.Abort as abort:
        if isinstance(abort.__context__, EOFError):
            click.echo(err=True)  # end the line of the question
            reason = "refusing to delete without confirmation: standard input is not a terminal"
            raise CommandError(reason, command=without) from None
        raise


def print_json(document: object) -> None:
    """Print a document as one line on standard output."""
    _write_json(sys.stdout, document)


def _write_json(stream: TextIO, document: object) -> None:
    text = json.dumps(document, ensure_ascii=not has_all_text(stream.encoding))
    stream.write(visible_json(text) + "\n")
    stream.flush()


def print_json_error(error: click.ClickException) -> None:
    """Print the error as JSON on standard error. Absent values are null."""
    if isinstance(error, CommandError):
        code, field, command, hint = error.code, error.field, error.command, error.hint
    elif isinstance(error, click.UsageError):
        parameter = getattr(error, "param", None)
        code, command, hint = "USAGE", None, None
        field = "" if parameter is None or parameter.name is None else parameter.name
    else:
        code = field = ""
        command = hint = None
    told = {
        "code": code or "REFUSED",
        "field": field or None,
        "reason": error.format_message(),
        "nextCommand": command,
        "hint": hint,
    }
    _write_json(sys.stderr, {"error": told})


def document_of(value: object, names: str) -> dict[str, Any]:
    """The attributes `names` of the value, for JSON."""
    return {_camel(name): getattr(value, name) for name in names.split()}


def camel_case(document: Any, *, names: frozenset[str] = frozenset()) -> Any:  # noqa: ANN401
    """The document with field names in camelCase. Keys below `names` are data, and do not
    change."""
    if isinstance(document, dict):
        return {
            _camel(key): value if key in names else camel_case(value, names=names)
            for key, value in document.items()
        }
    if isinstance(document, list | tuple):
        return [camel_case(value, names=names) for value in document]
    return document


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table for people. Numbers are right-aligned, with grouped digits."""
    if title:
        console.print(escape(title), style="bold", highlight=False)
    table = Table(box=None, pad_edge=False)
    shown = [list(row) for row in rows]
    for index, name in enumerate(columns):
        numeric = bool(shown) and all(isinstance(row[index], int | float) for row in shown)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in shown:
        table.add_row(*(_cell(value) for value in row))
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    # Without blanks at the end of lines.
    for line in captured.get().splitlines():
        console.out(line.rstrip(), highlight=False)


def print_first(
    found: Sequence[T],
    limit: int,
    fields: str,
    columns: Mapping[str, Callable[[T], object]],
    none: str,
    *,
    as_json: bool,
) -> None:
    """Print the first `limit` of `found`. Callers fetch one more, so a longer `found` means that
    there are more.

    `fields`: see document_of. `none`: the text if `found` is empty.
    """
    shown = found[:limit]
    if as_json:
        print_json([document_of(one, fields) for one in shown])
    elif shown:
        rows = ([value_of(one) for value_of in columns.values()] for one in shown)
        print_table("", list(columns), rows)
    else:
        say(none)
    if len(found) > limit:
        say("there are more; show them with a larger --limit")


def print_done(done: str, name: str, *, as_json: bool) -> None:
    """Report what was done to the object, such as "deleted"."""
    if as_json:
        print_json({done: name})
    else:
        say(f"{done} {name}")


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return escape(str(value))


def counted(count: int, what: str) -> str:
    """ "1 fault", "1,200 faults"."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
