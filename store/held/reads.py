"""The reads of a store that this room needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.consume_queue import Bounds
    from store.reads import Filter, Pulled


class Reads(Protocol):
    """See MessageStore."""

    def pull(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int = ...,
        max_bytes: int = ...,
        tag_filter: str | Filter | None = ...,
    ) -> Pulled: ...

    def bounds(self, queues: Sequence[tuple[str, int]]) -> list[Bounds]: ...

    def is_cold(self, topic: str, queue_id: int, offset: int) -> bool: ...
