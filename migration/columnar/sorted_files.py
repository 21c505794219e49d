"""Writes derived rows to sorted files, which RocksDB ingests."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kvcq.engine.rocks import DERIVED, write_sst
from kvcq.tables import INDEX, UNIT_DTYPE, UNITS, expiry_stamps, max_key, pack_max, unpack_unit_key
from migration.columnar.derived_rows import IndexRows, UnitRows
from migration.columnar.strings import WORD, Strings, coded
from migration.columnar.unaligned import gather

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from kvcq.engine import Pair
    from kvcq.engine.rocks import SstFile
    from migration.columnar.unaligned import Ints

FAMILIES = {family.name: family for family in DERIVED.families}
#: Rows that are Python objects at the same time.
_WRITE_CHUNK = 65_536
#: If any key has more words, which is rare, rows are sorted by whole keys, which is slower.
_MOST_WORDS = 8


class LastUnits:
    """The last dispatched unit of each queue: the one with the highest physical offset."""

    def __init__(self) -> None:
        #: Unit prefix -> physical offset, queue offset.
        self.by_prefix: dict[bytes, tuple[int, int]] = {}

    def join(self, ends: Iterable[tuple[bytes, int, int]]) -> None:
        """Add units: prefix, physical offset, queue offset."""
        for prefix, place, offset in ends:
            found = self.by_prefix.get(prefix)
            if found is None or found[0] < place:
                self.by_prefix[prefix] = (place, offset)

    def rows(self) -> list[Pair]:
        """The `max` rows, unordered."""
        queues = {prefix: unpack_unit_key(prefix + bytes(8)) for prefix in self.by_prefix}
        return [
            (max_key(topic, queue_id), pack_max(*self.by_prefix[prefix]))
            for prefix, (topic, queue_id, _) in queues.items()
        ]


class UnitsFile(NamedTuple):
    """A file of units, and the end of each queue among them, for `LastUnits.join`."""

    file: SstFile
    ends: list[tuple[bytes, int, int]]


def write_units(path: Path, parts: Sequence[UnitRows]) -> UnitsFile | None:
    """Write the units of all parts to a new file; None without units."""
    rows = _joined_units(parts)
    prefixes, rank = _ranked(rows.prefixes, rows.queues)
    order = np.lexsort((rows.physical_offset, rows.queue_offset, rank))
    offsets = rows.queue_offset[order]
    # If several records have the same place, the last in the log wins, as with live dispatch.
    same = (rank[order[1:]] == rank[order[:-1]]) & (offsets[1:] == offsets[:-1])
    if same.any():
        order = order[np.append(~same, True)]
    rows = UnitRows(prefixes, rank[order], *(column[order] for column in rows[2:]))
    written = write_sst(path, _unit_pairs(rows), FAMILIES[UNITS])
    return None if written is None else UnitsFile(written, _ends(rows))


def write_index(path: Path, parts: Sequence[IndexRows]) -> SstFile | None:
    """Write the index rows of all parts to a new file; None without rows."""
    rows = _joined_index(parts)
    prefixes, rank = _ranked(rows.prefixes, rows.topics)
    rows = rows._replace(prefixes=prefixes, topics=rank)
    return write_sst(path, _index_pairs(rows, _key_order(rows)), FAMILIES[INDEX])


def row_keys(rows: IndexRows) -> list[bytes]:
    """The complete key of each row, as in kvcq.tables.keys.index_key."""
    found = np.empty(len(rows.keys), dtype=object)
    lengths = rows.keys.lengths
    table = Strings.of(rows.prefixes)
    # Keys whose topics and keys have the same lengths are built together.
    widths = table.lengths[rows.topics] << 32 | lengths
    order = np.argsort(widths, kind="stable")
    for shape in np.split(order, np.flatnonzero(np.diff(widths[order])) + 1):
        if not len(shape):
            continue
        topics = table[rows.topics[shape]]
        topic, key = f"V{topics.lengths[0]}", f"V{lengths[shape[0]]}"
        fields = [("topic", topic), ("length", ">i4"), ("one", "u1"), ("key", key), ("two", "u1")]
        whole = np.empty(len(shape), dtype=[*fields, ("time", ">i8"), ("place", ">i8")])
        whole["topic"] = gather(table.data, topic, topics.starts)
        whole["length"] = lengths[shape]
        whole["key"] = gather(rows.keys.data, key, rows.keys.starts[shape])
        whole["one"] = whole["two"] = 1
        whole["time"], whole["place"] = rows.store_time_ms[shape], rows.physical_offset[shape]
        found[shape] = _packed(whole)
    keys: list[bytes] = found.tolist()
    return keys


def _joined_units(parts: Sequence[UnitRows]) -> UnitRows:
    queues, prefixes = _joined_codes([(part.queues, part.prefixes) for part in parts])
    return UnitRows(prefixes, queues, *(_joined(parts, column) for column in range(2, 7)))


def _joined_index(parts: Sequence[IndexRows]) -> IndexRows:
    topics, prefixes = _joined_codes([(part.topics, part.prefixes) for part in parts])
    keys = Strings.joined([part.keys for part in parts])
    return IndexRows(prefixes, topics, keys, _joined(parts, 3), _joined(parts, 4))


def _joined(parts: Sequence[tuple[Any, ...]], column: int) -> Ints:
    return np.concatenate([np.empty(0, dtype=np.int64), *(part[column] for part in parts)])


def _joined_codes(parts: Sequence[tuple[Ints, list[bytes]]]) -> tuple[Ints, list[bytes]]:
    numbers, values = coded([value for _, values in parts for value in values])
    found = [np.empty(0, dtype=np.int64)]
    first = 0
    for codes, own in parts:
        found.append(numbers[first + codes])
        first += len(own)
    return np.concatenate(found), values


def _ranked(values: list[bytes], codes: Ints) -> tuple[list[bytes], Ints]:
    """The values sorted, and each row's rank among them."""
    ranked = sorted(range(len(values)), key=values.__getitem__)
    rank_of = np.empty(len(ranked), dtype=np.int64)
    rank_of[ranked] = np.arange(len(ranked))
    return [values[number] for number in ranked], rank_of[codes]


def _unit_pairs(rows: UnitRows) -> Iterator[Pair]:
    """Rows in key order. Prefixes of equal length are adjacent, because the length comes first."""
    prefixes, rank = rows.prefixes, rows.queues
    lengths = np.array([len(prefix) for prefix in prefixes], dtype=np.int64)[rank]
    runs = [0, *(np.flatnonzero(np.diff(lengths)) + 1).tolist(), len(rank)]
    for run_start, run_end in pairwise(runs):
        if run_start == run_end:
            continue
        length, first = int(lengths[run_start]), int(rank[run_start])
        whole = b"".join(prefixes[first : int(rank[run_end - 1]) + 1])
        table = np.frombuffer(whole, dtype=f"V{length}")
        for start in range(run_start, run_end, _WRITE_CHUNK):
            chunk = slice(start, min(start + _WRITE_CHUNK, run_end))
            keys = np.empty(chunk.stop - start, dtype=[("prefix", f"V{length}"), ("offset", ">i8")])
            keys["prefix"] = table[rank[chunk] - first]
            keys["offset"] = rows.queue_offset[chunk]
            yield from zip(_packed(keys), _unit_values(rows, chunk), strict=True)


def _unit_values(rows: UnitRows, chunk: slice) -> list[bytes]:
    values = np.empty(chunk.stop - chunk.start, dtype=UNIT_DTYPE)
    for name in ("physical_offset", "record_size", "tag_code", "store_time_ms"):
        values[name] = getattr(rows, name)[chunk]
    values["expiry_stamp"] = expiry_stamps(rows.store_time_ms[chunk])
    return _packed(values)


def _packed(items: npt.NDArray[np.void]) -> list[bytes]:
    packed: list[bytes] = items.view(f"V{items.itemsize}").tolist()
    return packed


def _ends(rows: UnitRows) -> list[tuple[bytes, int, int]]:
    """The ends of queues, from sorted rows."""
    starts = np.flatnonzero(np.diff(rows.queues, prepend=-1))
    highest = np.maximum.reduceat(rows.physical_offset, starts)
    counts = np.diff(np.append(starts, len(rows.queues)))
    last = np.flatnonzero(rows.physical_offset == np.repeat(highest, counts))
    columns = (rows.queues, rows.physical_offset, rows.queue_offset)
    found = zip(*(column[last].tolist() for column in columns), strict=True)
    return [(rows.prefixes[queue], place, offset) for queue, place, offset in found]


def _key_order(rows: IndexRows) -> Ints:
    """The order of complete keys: topic, length of the key, key, time, place."""
    lengths = rows.keys.lengths
    shape = rows.topics << 32 | lengths
    words = -(-int(lengths.max(initial=0)) // WORD)
    if words > _MOST_WORDS:
        columns = (shape.tolist(), rows.keys.tolist(), rows.store_time_ms.tolist())
        whole = list(zip(*columns, rows.physical_offset.tolist(), strict=True))
        return np.array(sorted(range(len(whole)), key=whole.__getitem__), dtype=np.int64)
    parts = [shape, *map(rows.keys.word, range(words)), rows.store_time_ms, rows.physical_offset]
    return np.lexsort(parts[::-1])


def _index_pairs(rows: IndexRows, order: Ints) -> Iterator[Pair]:
    for start in range(0, len(order), _WRITE_CHUNK):
        chunk = rows.take(order[start : start + _WRITE_CHUNK])
        stamps = expiry_stamps(chunk.store_time_ms).astype("<i4").view("V4").tolist()
        yield from zip(row_keys(chunk), stamps, strict=True)
