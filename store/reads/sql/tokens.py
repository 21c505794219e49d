"""The tokens of an SQL92 filter."""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING, NamedTuple

from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator

FIELD = "sql_filter"


class Kind(enum.Enum):
    INTEGER = enum.auto()
    DECIMAL = enum.auto()
    TEXT = enum.auto()
    NAME = enum.auto()
    WORD = enum.auto()  # of the language, in capitals
    SIGN = enum.auto()
    END = enum.auto()


class Token(NamedTuple):
    kind: Kind
    text: str  # for a text, without its quotes
    at: int  # characters from the beginning of the filter

    def is_any_of(self, *texts: str) -> bool:
        """Whether it is one of these words or signs."""
        return self.kind in (Kind.WORD, Kind.SIGN) and self.text in texts


_WORDS = frozenset(
    "AND OR NOT IS NULL BETWEEN IN CONTAINS STARTSWITH ENDSWITH TRUE FALSE".split()  # noqa: SIM905
)
_IGNORED = re.compile(r"(?:\s+|--[^\n]*|/\*.*?\*/)*", re.DOTALL)
_TOKEN = re.compile(
    r"(?P<DECIMAL>(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<INTEGER>[0-9]+[lL]?)"
    r"|(?P<TEXT>'(?:[^']|'')*')"
    r"|(?P<NAME>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<SIGN><>|<=|>=|[=<>(),+-])"
)


def tokens_of(text: str) -> Iterator[Token]:
    """The last token is of the kind END, and is yielded forever.

    Raises InvalidArgumentError at invalid text, once it is reached.
    """
    at = 0
    while True:
        ignored = _IGNORED.match(text, at)
        assert ignored is not None  # the pattern also matches an empty text
        at = ignored.end()
        if at == len(text):
            yield Token(Kind.END, "the end", at)
            continue
        found = _TOKEN.match(text, at)
        if found is None and text[at] == "'":
            raise refusal(at, f"{text[at : at + 20]!r} has no closing quote")
        if found is None:
            raise refusal(at, f"{text[at : at + 20]!r} begins nothing that a filter knows")
        yield _token(Kind[found.lastgroup or ""], found[0], at)
        at = found.end()


def _token(kind: Kind, text: str, at: int) -> Token:
    if kind is Kind.NAME and text.upper() in _WORDS:
        return Token(Kind.WORD, text.upper(), at)
    if kind is Kind.TEXT:
        text = text[1:-1].replace("''", "'")
    return Token(kind, text, at)


def refusal(at: int, why: str) -> InvalidArgumentError:
    """The error for an invalid filter, at that character."""
    return InvalidArgumentError(FIELD, f"at character {at + 1}: {why}")
