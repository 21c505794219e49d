"""A filter by an SQL92 condition."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from store.errors import InvalidArgumentError
from store.format import decode_properties, java_hash, properties_of
from store.reads.sql.parser import Parser
from store.reads.sql.tokens import FIELD

if TYPE_CHECKING:
    from store.reads.sql.conditions import Term

MOST_CHARACTERS = 2048


class SqlFilter:
    """Selects messages by a condition on their properties; the tag is the property TAGS.

    A property without a value counts as missing. NULL matches nothing. A condition that cannot be
    evaluated matches nothing either: `matches` raises ConditionError, for the caller to count.
    """

    __slots__ = ("_ask", "codes")

    #: Maximum number of records that one pull checks if few match: a filter without matches
    #: advances by this many, and occupies the processor for some milliseconds.
    most_judged = 512

    def __init__(self, condition: Term) -> None:
        self._ask = condition.ask
        #: Tag codes of all messages that can match; None: any.
        self.codes = None if condition.tag is None else frozenset([java_hash(condition.tag)])

    @classmethod
    def parse(cls, text: str) -> SqlFilter | None:
        """The parsed filter; None for an empty text, which matches everything.

        Raises InvalidArgumentError, which names the position.
        """
        if len(text) > MOST_CHARACTERS:
            raise InvalidArgumentError(
                FIELD, f"{len(text)} characters, more than {MOST_CHARACTERS}"
            )
        return _parsed(text) if text.strip() else None

    def matches(self, record: bytes) -> bool:
        """Raises ConditionError; UnicodeDecodeError if properties are not UTF-8."""
        return self._ask(decode_properties(properties_of(record).decode())) is True


@lru_cache(1024)
def _parsed(text: str) -> SqlFilter:
    return SqlFilter(Parser(text).parse())
