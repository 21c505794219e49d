"""Output to a terminal. Text of messages and names is never interpreted.

A tag or a key may contain escape sequences that clear the screen, change its title, or send input
to the shell. Characters that a terminal acts on are shown in the form `\\x1b`. So are characters
that change the direction of text, end a line, or are invisible: otherwise two names could look
equal.

A terminal whose encoding is not UTF-8 gets `\u20ac` for a character that it does not have.
"""

from __future__ import annotations

import json
import sys
from io import TextIOWrapper
from typing import IO, TYPE_CHECKING, Any
from unicodedata import category

from rich.console import Console

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.status import Status

#: Width of output to a pipe or a file, where lines are not wrapped.
_PIPED_WIDTH = 1 << 16


def accept_all_text() -> None:
    """Make printing succeed for characters that the encoding of standard output does not have.

    UTF-8 needs this as well: names of files that are not text contain lone surrogates.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def has_all_text(encoding: str | None) -> bool:
    """Whether every character can be written in the encoding."""
    return (encoding or "").lower().startswith("utf")


def visible(text: str) -> str:
    """The text with characters that a terminal acts on replaced by their escapes."""
    return _with_unseen(text, _written_out)


def one_line(text: str) -> str:
    """Like `visible`, with line ends and tabs replaced as well."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _written_out(one) for one in text)


def visible_json(text: str) -> str:
    """Like `visible`, for a JSON document: its JSON value stays the same."""
    return _with_unseen(text, lambda one: json.dumps(one)[1:-1])


def _with_unseen(text: str, write_out: Callable[[str], str]) -> str:
    if text.isprintable():
        return text
    return "".join(one if _is_seen(one) else write_out(one) for one in text)


def _is_seen(character: str) -> bool:
    """Whether the character is visible or white space; line ends and tabs count as white space."""
    return character.isprintable() or character in "\n\t" or category(character) == "Zs"


def _written_out(character: str) -> str:
    return character.encode("unicode_escape").decode()


class Screen(Console):
    """A console whose strings may have rich's markup; pass other text through `escape`."""

    def __init__(self, file: IO[str] | None = None, *, stderr: bool = False) -> None:
        # In a pipe or a file, tables are as wide as their content.
        stream = sys.stderr if stderr else sys.stdout
        width = None if stderr or (stream is not None and stream.isatty()) else _PIPED_WIDTH
        super().__init__(file=file, stderr=stderr, width=width)

    def print(self, *objects: Any, **settings: Any) -> None:  # noqa: ANN401 - as rich has it
        """Like `Console.print`."""
        super().print(
            *(visible(one) if isinstance(one, str) else one for one in objects), **settings
        )

    def waiting(self, text: str) -> Status:
        """A spinner and the text, until the block ends."""
        return self.status(text, spinner="dots" if has_all_text(self.encoding) else "line")

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError like every other write; rich would end the program itself."""
        raise BrokenPipeError


def escape(text: str) -> str:
    """The text for use in markup: `visible`, with its brackets escaped."""
    return visible(text).replace("[", "\\[")
