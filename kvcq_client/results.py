"""Results of calls that return messages. `max_` and `next_` offsets are exclusive."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kvcq_client.format import StoredMessage


class Pulled(NamedTuple):
    """The result of a pull. If `messages` is empty and `next_offset` is later than the requested
    offset, no message there passed the tag filter."""

    messages: list[StoredMessage]
    next_offset: int
    min_offset: int
    max_offset: int


class StoredBatch(NamedTuple):
    """A numbered batch in the log. Queue offsets are those of the topics."""

    messages: list[StoredMessage]
    message_count: int  # including messages that expired or are not kept

    @property
    def is_partial(self) -> bool:
        """Whether some of its messages have expired, or are no longer kept by their topics."""
        return len(self.messages) < self.message_count


class QueryPage(NamedTuple):
    """Messages with a key, oldest first. If not `complete`, `cursor` continues the query."""

    messages: list[StoredMessage]
    cursor: bytes
    complete: bool
