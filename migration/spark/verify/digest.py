"""The content of a source as sums in buckets, which the driver compares between sources.

A unit's place or an index row's key selects the bucket, so rows that a detailed comparison joins
are in the same bucket. Sums with store times are separate, because file queues have no store times.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvcq.inspect import BucketSums
from kvcq.tables import expiry_stamps, name_hashes, place_hashes, queue_hashes, timed, unit_hashes
from migration.spark.verify.queue_ends import EndsByHash

if TYPE_CHECKING:
    import numpy.typing as npt

    from kvcq.tables import Hashes
    from migration.spark.verify.key_rows import KeyRows

BUCKETS = 4096


def _sums() -> BucketSums:
    return BucketSums(BUCKETS)


@dataclass
class Digest:
    """The digest of one source: units, index rows, and for the log the end of each queue."""

    units: BucketSums = field(default_factory=_sums)
    times: BucketSums = field(default_factory=_sums)
    keys: BucketSums = field(default_factory=_sums)
    ends: EndsByHash = field(default_factory=EndsByHash)

    def add_units(self, units: pa.RecordBatch) -> None:
        """Add units, with the columns CONSUMEQUEUE."""
        offset, *numbers = (
            _ints(units.column(name))
            for name in ("queue_offset", "physical_offset", "record_size", "tag_code")
        )
        queues = queues_of(units)
        places = place_hashes(queues, offset)
        hashes = unit_hashes(queues, offset, *numbers)
        self.units.add(hashes, places)
        if units.column("store_time_ms").null_count == 0:
            times = _ints(units.column("store_time_ms"))
            # 0 if the stamp is correct or missing.
            stamps = pa.array(expiry_stamps(times).astype(np.int32))
            wrong = pc.fill_null(pc.subtract(units.column("expiry_stamp_s"), stamps), 0)
            self.times.add(timed(hashes, times) ^ _ints(wrong).view(np.uint64), places)

    def add_keys(self, rows: KeyRows) -> None:
        self.keys.add(rows.hashes(), rows.key_hashes())

    def differing(self, other: Digest, *, times: bool) -> npt.NDArray[np.int64]:
        """Buckets in which units differ; with `times`, including store times."""
        found = self.units.differing(other.units)
        return np.union1d(found, self.times.differing(other.times)) if times else found

    def merge(self, other: Digest) -> None:
        """Add the other's sums."""
        self.units.merge(other.units)
        self.times.merge(other.times)
        self.keys.merge(other.keys)
        self.ends.merge(other.ends)


def queues_of(units: pa.RecordBatch) -> Hashes:
    """A hash of the queue of each unit; the same in every process."""
    return hashes_of_queues(units.column("topic"), units.column("queue_id"))


def hashes_of_queues(topics: pa.StringArray, queue_ids: pa.Array) -> Hashes:
    encoded = topics.dictionary_encode()
    names = name_hashes(encoded.dictionary.to_pylist())
    return queue_hashes(names[_ints(encoded.indices)], _ints(queue_ids))


def buckets_of_units(units: pa.RecordBatch) -> npt.NDArray[np.int64]:
    return _sums().buckets_of(place_hashes(queues_of(units), _ints(units.column("queue_offset"))))


def buckets_of_keys(rows: KeyRows) -> npt.NDArray[np.int64]:
    return _sums().buckets_of(rows.key_hashes())


def _ints(values: pa.Array) -> npt.NDArray[np.int64]:
    return np.asarray(values).astype(np.int64)
