"""Many rows, page by page: each page is one scan, and nothing is open between two."""

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
    """Rows from `start` to `end`, exclusive, rising, at most so many `rows` at a time.

    The blocks it reads push no others out of the cache. Rows that come or go meanwhile may be
    among them.
    """
    while page := engine.scan(family, start, end, limit=rows, fill_cache=False):
        start = page[-1][0] + b"\0"
        yield page
