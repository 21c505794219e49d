"""Reads many rows page by page: each page is one scan, and nothing stays open between two."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcq.engine.protocol import KvEngine, Pair

#: Above every key of queues and index: those begin with a length, which is never negative.
LAST_KEY = b"\xff"


def pages(
    engine: KvEngine, family: str, start: bytes = b"", end: bytes = LAST_KEY, *, rows: int = 4096
) -> Iterator[list[Pair]]:
    """Yield rows with start <= key < end, ascending, at most `rows` at a time.

    The blocks it reads do not evict others from the cache. Rows added or removed meanwhile may be
    included or not.
    """
    while page := engine.scan(family, start, end, limit=rows, fill_cache=False):
        start = page[-1][0] + b"\0"
        yield page
