"""Which messages a reader wants: by tag, or by an SQL92 condition."""

from __future__ import annotations

from store.errors import InvalidArgumentError
from store.format import MAX_PROPERTIES_BYTES, java_hash, tag_of
from store.reads.sql import SqlFilter

#: One tag may be as long as a message's properties; or some thousand usual ones.
MAX_FILTER_CHARACTERS = MAX_PROPERTIES_BYTES


class TagFilter:
    """The tags that a pull wants: `*` or nothing for all, otherwise `tagA || tagB`."""

    __slots__ = ("codes", "tags")

    #: Minimum number of records that one pull checks: those that it returns.
    most_judged = 1

    def __init__(self, tags: frozenset[str]) -> None:
        self.tags = tags
        self.codes: frozenset[int] | None = frozenset(java_hash(tag) for tag in tags)

    @classmethod
    def parse(cls, expression: str) -> TagFilter | None:
        """The parsed filter; None if everything matches. Raises InvalidArgumentError; a text that
        is too long is not split."""
        if len(expression) > MAX_FILTER_CHARACTERS:
            raise InvalidArgumentError(
                "tag_filter",
                f"{len(expression)} characters, more than {MAX_FILTER_CHARACTERS}",
            )
        expression = expression.strip()
        if not expression or expression == "*":
            return None
        tags = [tag.strip() for tag in expression.split("||")]
        if "" in tags or "*" in tags:
            raise InvalidArgumentError("tag_filter", f"{expression!r} has an empty tag or a *")
        return cls(frozenset(tags))

    def matches(self, record: bytes) -> bool:
        """Whether the record has a wanted tag. Compares texts, since two tags may share a hash."""
        return tag_of(record) in self.tags


Filter = TagFilter | SqlFilter


def parse_filter(tags: str, sql: str) -> Filter | None:
    """The parsed filter; None if everything matches. Raises InvalidArgumentError, also if both are
    given."""
    by_tag, by_condition = TagFilter.parse(tags), SqlFilter.parse(sql)
    if by_tag is not None and by_condition is not None:
        raise InvalidArgumentError(
            "sql_filter",
            "cannot be combined with tags: write TAGS = 'created' in the condition",
        )
    return by_tag or by_condition
