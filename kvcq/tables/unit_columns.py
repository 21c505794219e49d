"""Units of many queues in columns, and a hash of each unit, whatever its source.

Equal units have the same hash in every process, whether they are read from the log, from files, or
from RocksDB. Sums of such hashes show whether two places hold the same units.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kvcq.errors import CorruptValueError
from kvcq.tables.keys import OFFSET_BYTES, unpack_unit_key
from kvcq.tables.values import ROCKETMQ_UNIT_SIZE, UNIT_DTYPE, UNIT_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kvcq.engine import Pair
    from store.consume_queue import DispatchRequest

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

#: Odd, and without a pattern: one for each number of a unit, and one for its store time.
_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93)
_TIME_FACTOR = 0xA0761D6478BD642F
_STEP = 0x9E3779B97F4A7C15

_PAGE_UNITS = 16_384

#: Physical offset, size, tag code and, where it is kept, store time.
Unit = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UnitColumns:
    """Units: numbers in columns, and the index of each unit's queue."""

    queues: Sequence[tuple[str, int]]  # topic and queue id
    queue_index: Ints
    queue_offset: Ints
    physical_offset: Ints
    record_size: Ints
    tag_code: Ints
    store_time_ms: Ints | None  # None: not kept, as in files

    def __len__(self) -> int:
        return len(self.queue_offset)

    def where(self, chosen: npt.NDArray[np.bool_] | Ints) -> UnitColumns:
        """The units at the indexes, or where the mask is true."""
        times = self.store_time_ms
        return replace(
            self,
            queue_index=self.queue_index[chosen],
            queue_offset=self.queue_offset[chosen],
            physical_offset=self.physical_offset[chosen],
            record_size=self.record_size[chosen],
            tag_code=self.tag_code[chosen],
            store_time_ms=None if times is None else times[chosen],
        )

    def hashes(self) -> Hashes:
        """A hash of each unit, including the store time if there is one."""
        names = name_hashes([topic for topic, _ in self.queues])
        ids = np.array([queue_id for _, queue_id in self.queues], np.int64)
        numbers = (self.queue_offset, self.physical_offset, self.record_size, self.tag_code)
        hashes = unit_hashes(queue_hashes(names, ids)[self.queue_index], *numbers)
        return hashes if self.store_time_ms is None else timed(hashes, self.store_time_ms)

    def rows(self) -> Iterator[tuple[tuple[str, int], int, Unit]]:
        """Yield each unit as queue, queue offset and unit."""
        columns = [self.physical_offset, self.record_size, self.tag_code]
        if self.store_time_ms is not None:
            columns.append(self.store_time_ms)
        units = zip(*(column.tolist() for column in columns), strict=True)
        queues = map(self.queues.__getitem__, self.queue_index.tolist())
        return zip(queues, self.queue_offset.tolist(), units, strict=True)


def units_of_requests(requests: Sequence[DispatchRequest]) -> UnitColumns:
    """The units of these records, including light queues."""
    queued = [request for request in requests if request[9]]
    if not queued:
        return _NONE
    columns = list(zip(*queued, strict=True))
    if any(columns[8]):
        # A record that names a light queue twice is in it once.
        rows = [
            (name, 0, offset, *request[3:7])
            for request in queued
            for name, offset in dict.fromkeys(request[8])
        ]
        more = zip(*rows, strict=True)
        columns = [(*own, *other) for own, other in zip(columns, more, strict=False)]
    pairs = list(zip(*columns[:2], strict=True))
    index = {queue: number for number, queue in enumerate(dict.fromkeys(pairs))}
    offsets, places, sizes, tags, times = (np.array(column, np.int64) for column in columns[2:7])
    return UnitColumns(
        list(index),
        np.fromiter(map(index.__getitem__, pairs), np.int64, len(pairs)),
        offsets,
        places,
        sizes,
        tags,
        times,
    )


def units_of_rows(rows: Sequence[Pair]) -> UnitColumns:
    """The units of database rows, ours or RocketMQ's. Raises CorruptValueError."""
    if not rows:
        return _NONE
    values = [value for _, value in rows]
    sizes = set(map(len, values))
    if not sizes <= {UNIT_SIZE, ROCKETMQ_UNIT_SIZE}:
        raise CorruptValueError(f"a unit of {max(sizes)} or {min(sizes)} bytes, not {UNIT_SIZE}")
    if sizes != {UNIT_SIZE}:
        values = [value.ljust(UNIT_SIZE, b"\0") for value in values]
    units = np.frombuffer(b"".join(values), UNIT_DTYPE)
    if (units["physical_offset"] < 0).any() or (units["record_size"] <= 0).any():
        raise CorruptValueError("an impossible unit")
    return units_at([key for key, _ in rows], units)


def units_at(keys: Sequence[bytes], units: npt.NDArray[np.void]) -> UnitColumns:
    """The units of rows of the database that were checked: keys, and values as `UNIT_DTYPE`."""
    prefixes = [key[:-OFFSET_BYTES] for key in keys]
    index = {prefix: number for number, prefix in enumerate(dict.fromkeys(prefixes))}
    return UnitColumns(
        [unpack_unit_key(prefix + bytes(OFFSET_BYTES))[:2] for prefix in index],
        np.fromiter(map(index.__getitem__, prefixes), np.int64, len(prefixes)),
        np.frombuffer(b"".join([key[-OFFSET_BYTES:] for key in keys]), ">i8").astype(np.int64),
        units["physical_offset"].astype(np.int64),
        units["record_size"].astype(np.int64),
        units["tag_code"].astype(np.int64),
        units["store_time_ms"].astype(np.int64),
    )


def units_of_queues(
    queues: Sequence[tuple[str, int]],
    offsets: Sequence[Ints],
    units: Sequence[npt.NDArray[np.void]],
) -> UnitColumns:
    """The units of some queues: queue offsets, and units as in files."""
    if not queues:
        return _NONE
    joined = np.concatenate(units)
    return UnitColumns(
        queues,
        np.repeat(np.arange(len(queues)), [len(each) for each in offsets]),
        np.concatenate(offsets),
        joined["physical_offset"].astype(np.int64),
        joined["record_size"].astype(np.int64),
        joined["tag_code"].astype(np.int64),
        None,
    )


def pages_of_queues(
    parts: Iterable[tuple[tuple[str, int], Ints, npt.NDArray[np.void]]],
) -> Iterator[UnitColumns]:
    """Yield the units of all parts (queue, queue offsets, units as in files), many at once."""
    page, count = [], 0
    for part in parts:
        page.append(part)
        count += max(1, len(part[1]))
        if count >= _PAGE_UNITS:
            yield units_of_queues(*zip(*page, strict=True))
            page, count = [], 0
    if page:
        yield units_of_queues(*zip(*page, strict=True))


def name_hashes(names: Sequence[str]) -> Hashes:
    """Hashes of topics and light queues."""
    return np.array([_name_hash(name) for name in names], np.uint64)


def queue_hashes(names: Hashes, queue_ids: Ints) -> Hashes:
    """Hashes of queues, from the hashes of their names."""
    return mixed(names ^ mixed(queue_ids.view(np.uint64)))


def place_hashes(queues: Hashes, queue_offsets: Ints) -> Hashes:
    """Hashes of places in queues, from the hashes of the queues."""
    return mixed(queues + queue_offsets.view(np.uint64) * np.uint64(_FACTORS[0]))


def unit_hashes(queues: Hashes, *numbers: Ints) -> Hashes:
    """Hashes of units without store times, from the hashes of their queues. The numbers: queue
    offset, physical offset, size, tag code."""
    hashes = queues
    for factor, column in zip(_FACTORS, numbers, strict=True):
        hashes = hashes + column.view(np.uint64) * np.uint64(factor)
    return mixed(hashes)


def timed(hashes: Hashes, store_times_ms: Ints) -> Hashes:
    """Hashes of units with their store times."""
    return mixed(hashes + store_times_ms.view(np.uint64) * np.uint64(_TIME_FACTOR))


def mixed(values: Hashes) -> Hashes:
    """Every bit of the result depends on every bit of the value (the finisher of SplitMix64)."""
    values = values + np.uint64(_STEP)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(_FACTORS[0])
    values = (values ^ (values >> np.uint64(27))) * np.uint64(_FACTORS[1])
    return values ^ (values >> np.uint64(31))


@lru_cache(maxsize=4096)
def _name_hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


_EMPTY = np.empty(0, np.int64)
_NONE = UnitColumns((), _EMPTY, _EMPTY, _EMPTY, _EMPTY, _EMPTY, _EMPTY)
