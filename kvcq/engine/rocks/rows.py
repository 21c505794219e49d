"""Converts a batch to RocksDB's, and scans rows with a check for damage."""

from __future__ import annotations

from collections import deque
from itertools import islice, starmap, takewhile
from typing import TYPE_CHECKING, cast

from rocksdict import ColumnFamily, Rdict, ReadOptions, WriteBatch, WriteOptions

from kvcq.engine.protocol import RowColumns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kvcq.engine.protocol import KvBatch, Pair

#: Reads ahead of a scan that keeps its blocks out of the cache.
_BULK_READAHEAD_BYTES = 2 << 20


def write_options() -> WriteOptions:
    options = WriteOptions()
    # Waiting inside RocksDB would hold the GIL: a stall would freeze the process.
    options.no_slowdown = True
    # A property; the binding's stub says method.
    setattr(options, "disable_wal", True)  # noqa: B010
    return options


def encode(batch: KvBatch, handles: Mapping[str, ColumnFamily]) -> WriteBatch:
    """Range deletes, then deletes, then puts. It refers to handles, so release it before
    returning."""
    rows = WriteBatch(raw_mode=True)
    try:
        for family, start, end in batch.delete_ranges:
            if start < end:  # RocksDB refuses the whole batch for a range turned round
                rows.delete_range(start, end, handles[family])
        for family, key in batch.deletes:
            rows.delete(key, handles[family])
        for family, puts in batch.puts.items():
            if not puts:
                continue
            rows.set_default_column_family(handles[family])
            # The loop runs in C: half again as fast as one in Python.
            if isinstance(puts, RowColumns):
                deque(map(rows.put, puts.key_column, puts.value_column), maxlen=0)
            else:
                deque(starmap(rows.put, puts), maxlen=0)
        return rows
    finally:
        del rows, handles


def read_options(end: bytes, *, fill_cache: bool) -> ReadOptions:
    """For a scan of keys below `end`. With `fill_cache` off, blocks read do not evict others from
    the cache."""
    options = ReadOptions()
    # Only this bound: the binding's setter of the lower one sets the upper one (0.3.29).
    options.set_iterate_upper_bound(end)
    if not fill_cache:
        # The binding's stub leaves the argument out.
        cast("Callable[[bool], None]", options.fill_cache)(fill_cache)
        options.set_readahead_size(_BULK_READAHEAD_BYTES)
    return options


def scan_rows(
    table: Rdict,
    options: ReadOptions,
    start: bytes,
    end: bytes,
    limit: int | None,
    *,
    reverse: bool,
) -> list[Pair]:
    """At most `limit` rows with start <= key < end.

    `options`: from `read_options(end)`. Raises the binding's Exception at a damaged block.
    """
    items = inside = walk = None
    try:
        # In raw mode the binding gives bytes, whatever its stub says.
        items = cast(
            "Iterator[Pair]",
            table.items(backwards=reverse, from_key=end if reverse else start, read_opt=options),
        )
        inside = takewhile(lambda row: row[0] >= start, items) if reverse else items
        rows = list(islice(inside, limit))
        if len(rows) == limit or (rows and reverse and rows[-1][0] == start):
            return rows
        # At the end, or at a damaged block, which this iterator can report. It continues from the
        # last row, so rows written meanwhile are included.
        walk = table.iter(options)
        seek, step = (walk.seek_for_prev, walk.prev) if reverse else (walk.seek, walk.next)
        seek(rows[-1][0] if rows else end if reverse else start)
        if rows and walk.valid() and walk.key() == rows[-1][0]:
            step()
        while walk.valid() and len(rows) != limit and walk.key() >= start:
            rows.append((walk.key(), walk.value()))
            step()
        walk.status()
        return rows
    finally:
        del items, walk, inside
