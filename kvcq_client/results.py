"""What calls return that have messages. `max_` and `next_` are exclusive."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kvcq_client.format import StoredMessage


class Pulled(NamedTuple):
    """One pull. Empty `messages` with `next_offset` above the asked one: none had a wanted tag."""

    messages: list[StoredMessage]
    next_offset: int
    min_offset: int
    max_offset: int


class StoredBatch(NamedTuple):
    """What the log has under a producer's number. Queue offsets are those of the topics."""

    messages: list[StoredMessage]
    message_count: int  # with those that have left the log, or are not kept

    @property
    def is_partial(self) -> bool:
        """Whether some of it has left the log, or is not kept by its topic any more."""
        return len(self.messages) < self.message_count


class QueryPage(NamedTuple):
    """Messages with one key, oldest first. `complete` is false when `cursor` has more."""

    messages: list[StoredMessage]
    cursor: bytes
    complete: bool
