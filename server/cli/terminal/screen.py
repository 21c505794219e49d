"""What goes to a terminal: text of messages and names is shown, and never obeyed.

A tag or a key may hold escape sequences: they could clear a screen, change its title, or answer for
the person at the keyboard. Characters that a terminal acts on are shown as `\\x1b` instead; so are
those that turn the direction of text, end a line, or are not seen at all: two names that look alike
are not told apart otherwise.

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

#: Of a table that goes into a pipe or a file: nothing is folded there.
_PIPED_WIDTH = 1 << 16


def accept_all_text() -> None:
    """Printing never fails on a character that the encoding of standard output does not have.

    Also in UTF-8: names of files that are not text come in as lone surrogates.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def has_all_text(encoding: str | None) -> bool:
    """Whether every character can be written in the encoding."""
    return (encoding or "").lower().startswith("utf")


def visible(text: str) -> str:
    """The text with what a terminal would act on written out."""
    return _with_unseen(text, _written_out)


def one_line(text: str) -> str:
    """The text with all that is not printable written out: line ends, tabs, and what acts."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _written_out(one) for one in text)


def visible_json(text: str) -> str:
    """Like `visible`, for a JSON document, whose value does not change."""
    return _with_unseen(text, lambda one: json.dumps(one)[1:-1])


def _with_unseen(text: str, write_out: Callable[[str], str]) -> str:
    if text.isprintable():
        return text
    return "".join(one if _is_seen(one) else write_out(one) for one in text)


def _is_seen(character: str) -> bool:
    """Whether it shows, or makes room on the line; a line end and a tab are meant."""
    return character.isprintable() or character in "\n\t" or category(character) == "Zs"


def _written_out(character: str) -> str:
    return character.encode("unicode_escape").decode()


class Screen(Console):
    """A console that shows what it is given. Strings may have markup; see `escape`."""

    def __init__(self, file: IO[str] | None = None, *, stderr: bool = False) -> None:
        # Tables are as wide as they need to be where nobody looks at them through a window.
        stream = sys.stderr if stderr else sys.stdout
        width = None if stderr or (stream is not None and stream.isatty()) else _PIPED_WIDTH
        super().__init__(file=file, stderr=stderr, width=width)

    def print(self, *objects: Any, **settings: Any) -> None:  # noqa: ANN401 - as rich has it
        """As `Console.print`."""
        super().print(
            *(visible(one) if isinstance(one, str) else one for one in objects), **settings
        )

    def waiting(self, text: str) -> Status:
        """A spinner and the text, until the block ends."""
        return self.status(text, spinner="dots" if has_all_text(self.encoding) else "line")

    def on_broken_pipe(self) -> None:
        """As every other write has it; rich would end the program itself."""
        raise BrokenPipeError


def escape(text: str) -> str:
    """Text in which brackets stand for themselves, and nothing acts on a terminal."""
    return visible(text).replace("[", "\\[")
