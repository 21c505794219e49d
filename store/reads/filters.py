"""Which messages a reader wants: by tag, or by an SQL92 condition."""

from __future__ import annotations

from store.errors import InvalidArgumentError
from store.reads.sql import SqlFilter
from store.reads.tag_filter import TagFilter

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
