"""A digest of many units that does not depend on their order: two sets that agree have equal ones.

Every unit falls into a bucket by a hash of its key, so a difference shows in which buckets it lies,
and only those need a closer look. A bucket keeps the number of its units and two sums modulo 2**64
of hashes of whole units; a unit that stands twice counts twice. The sum with the store time is
kept apart, for file queues do not have it.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kvcq.tables import expiry_stamps

Hashes = npt.NDArray[np.uint64]

BUCKETS = 4096
_COUNT, _SUM, _SQUARES, _TIMES = range(4)


class UnitDigest:
    """Counts and sums of BUCKETS buckets. Adding two of disjoint sets gives that of both."""

    def __init__(self) -> None:
        self.table: Hashes = np.zeros((4, BUCKETS), dtype=np.uint64)

    @property
    def count(self) -> int:
        return int(self.table[_COUNT].sum())

    def add(self, keys: Hashes, units: pa.RecordBatch) -> None:
        """Take in units whose keys have these hashes."""
        hashes = keys
        for name in ("physical_offset", "record_size", "tag_code"):
            hashes = mixed(hashes ^ mixed(_unsigned(units.column(name))))
        buckets = bucket_of(keys)
        np.add.at(self.table[_COUNT], buckets, np.uint64(1))
        np.add.at(self.table[_SUM], buckets, hashes)
        np.add.at(self.table[_SQUARES], buckets, mixed(hashes))
        if units.column("store_time_ms").null_count == 0:
            times = np.asarray(units.column("store_time_ms"))
            # Nothing where the stamp is as it should be, or where there is none.
            wrong = pc.fill_null(pc.subtract(units.column("expiry_stamp_s"), _stamps(times)), 0)
            timed = mixed(hashes ^ mixed(times.view(np.uint64))) ^ _unsigned(wrong)
            np.add.at(self.table[_TIMES], buckets, timed)

    def merge(self, other: UnitDigest) -> UnitDigest:
        """This one, with the other added."""
        self.table += other.table
        return self

    def differing(self, other: UnitDigest, *, times: bool) -> npt.NDArray[np.int64]:
        """Buckets in which the two sets are not the same."""
        rows = 4 if times else 3
        return np.flatnonzero((self.table[:rows] != other.table[:rows]).any(axis=0))


def bucket_of(keys: Hashes) -> npt.NDArray[np.int64]:
    """The bucket of each key."""
    return (keys >> np.uint64(52)).astype(np.int64)


def queue_hashes(topics: pa.StringArray, queue_ids: pa.Array) -> Hashes:
    """Hashes of queues; the same in every process."""
    encoded = topics.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    if not names:
        return np.empty(0, dtype=np.uint64)
    digests = [hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names]
    of_topic = np.frombuffer(b"".join(digests), dtype=np.uint64)
    hashes = of_topic[np.asarray(encoded.indices, dtype=np.int64)]
    return mixed(hashes ^ mixed(_unsigned(queue_ids)))


def key_hashes(queues: Hashes, offsets: pa.Array) -> Hashes:
    """Hashes of unit keys, from those of their queues."""
    return mixed(queues ^ mixed(_unsigned(offsets)))


def _stamps(times_ms: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(expiry_stamps(times_ms).astype(np.int32))


def _unsigned(values: pa.Array) -> Hashes:
    return np.asarray(values).astype(np.int64).view(np.uint64)


def mixed(values: Hashes) -> Hashes:
    """Every bit of the result depends on every bit of the value (the finisher of SplitMix64)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


assert BUCKETS == 1 << (64 - 52)
