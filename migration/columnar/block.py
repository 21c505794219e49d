"""Some records of one segment, and their columns, each built when it is first asked for.

Holds a view of the segment, no copy; columns are copies. Not for use from several threads.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kvcq_client.format import COMPRESSED, BodyError, decompress
from migration.columnar.columns import COMMITLOG
from migration.columnar.gather import Bytes, Ints, gather, gather_ints, slices
from migration.columnar.property_scan import PropertyScan
from migration.columnar.text import as_text, is_text
from store.format import (
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    OWN_PROPERTIES,
    SCHEDULE_TOPIC,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
    crc_mismatch,
    decode_properties,
    java_hash,
    tag_code_of,
    unpack_host,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    Bools = npt.NDArray[np.bool_]

# The layout is in store/format/record.py; these are its fixed runs of fields.
_HEAD = np.dtype(
    [
        ("record_size", ">i4"),
        ("magic", ">i4"),
        ("body_crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_time_ms", ">i8"),
    ]
)
_TAIL = np.dtype([("reconsume_times", ">i4"), ("prepared", ">i8"), ("body_length", ">i4")])
assert (_HEAD.itemsize, _TAIL.itemsize) == (48, 16)


class RecordBlock:
    """Records that begin at `positions` of `data`, whose first byte has physical offset `base`.

    Built from candidates: only after `count_sound` says so are the columns what they say.
    """

    def __init__(self, data: Bytes, base: int, positions: Ints) -> None:
        self._data = data
        self._base = base
        self._at = positions
        self._head = gather(data, _HEAD, positions)

    def __len__(self) -> int:
        return len(self._at)

    def first(self, count: int) -> RecordBlock:
        """The first `count` records."""
        return RecordBlock(self._data, self._base, self._at[:count])

    def where(self, mask: Bools) -> RecordBlock:
        """The records whose element in `mask` is true."""
        return self if mask.all() else RecordBlock(self._data, self._base, self._at[mask])

    def pieces(self, max_bytes: int) -> Iterator[RecordBlock]:
        """The same records in blocks of at most `max_bytes`, or of one record."""
        if not len(self) or int(self._end[-1] - self._at[0]) <= max_bytes:
            yield self
            return
        begin = 0
        while begin < len(self):
            end = int(np.searchsorted(self._end, self._at[begin] + max_bytes, side="right"))
            end = max(end, begin + 1)
            yield RecordBlock(self._data, self._base, self._at[begin:end])
            begin = end

    # --- what a record must be ------------------------------------------------------------

    def count_sound(self) -> int:
        """How many from the first on are records: magic, own place, lengths that add up."""
        magic = self._head["magic"].astype(np.int32)
        ok = (magic == MAGIC_V1) | (magic == MAGIC_V2)
        ok &= self._head["physical_offset"] == self._at + self._base
        ok &= (self._size >= MIN_RECORD_BYTES) & (self._end <= len(self._data))
        ok &= self._body_at + 3 <= self._end
        if not ok.all():
            # The lengths of what cannot even hold them are not worth reading.
            return self.first(int(ok.argmin())).count_sound()
        ok &= (self._body_length >= 0) & (self._body_end + self._width + 2 <= self._end)
        if not ok.all():
            return self.first(int(ok.argmin())).count_sound()
        ok &= (self._topic_length >= 0) & (self._topic_end + 2 <= self._end)
        if not ok.all():
            return self.first(int(ok.argmin())).count_sound()
        properties = gather_ints(self._data, ">i2", self._topic_end)
        ok &= (properties >= 0) & (self._properties_at + properties == self._end)
        return len(ok) if ok.all() else int(ok.argmin())

    def first_crc_mismatch(self) -> tuple[int, str] | None:
        """Index of the first record whose bytes do not match a CRC it carries, and which one."""
        view = self._data.data
        places = (self._at, self._body_at, self._body_end, self._properties_at, self._end)
        rows = zip(*(each.tolist() for each in places), strict=True)
        for index, (at, body_at, body_end, properties_at, end) in enumerate(rows):
            if reason := crc_mismatch(view, at, body_at, body_end, properties_at, end):
                return index, reason
        return None

    def undecodable(self) -> Bools:
        """Records whose topic or properties are no UTF-8: poison, which dispatch leaves out."""
        bad = np.zeros(len(self), dtype=np.bool_)
        for values in (self._raw_topic, self.properties_raw):
            if not is_text(values):
                bad |= np.array([not is_text(values.slice(i, 1)) for i in range(len(self))])
        return bad

    # --- where the fields lie ---------------------------------------------------------------

    @cached_property
    def _size(self) -> Ints:
        return self._head["record_size"].astype(np.int64)

    @cached_property
    def _end(self) -> Ints:
        return self._at + self._size

    @cached_property
    def _flags(self) -> Ints:
        return self._head["sys_flag"].astype(np.int64)

    @cached_property
    def _store_time_at(self) -> Ints:
        at: Ints = self._at + 56 + 12 * (self._flags >> 4 & 1)
        return at

    @cached_property
    def _tail_at(self) -> Ints:
        at: Ints = self._store_time_at + 16 + 12 * (self._flags >> 5 & 1)
        return at

    @cached_property
    def _body_at(self) -> Ints:
        return self._tail_at + 16

    @cached_property
    def _tail(self) -> npt.NDArray[np.void]:
        return gather(self._data, _TAIL, self._tail_at)

    @cached_property
    def _body_length(self) -> Ints:
        return self._tail["body_length"].astype(np.int64)

    @cached_property
    def _body_end(self) -> Ints:
        return self._body_at + self._body_length

    @cached_property
    def _width(self) -> Ints:
        """Bytes of the topic length."""
        return np.where(self._head["magic"] == MAGIC_V2, 2, 1)

    @cached_property
    def _topic_length(self) -> Ints:
        # Two bytes are there in either version: the properties follow with a length of their own.
        two = gather_ints(self._data, ">i2", self._body_end)
        return np.where(self._width == 2, two, two >> 8)

    @cached_property
    def _topic_end(self) -> Ints:
        return self._body_end + self._width + self._topic_length

    @cached_property
    def _properties_at(self) -> Ints:
        return self._topic_end + 2

    @cached_property
    def _raw_topic(self) -> pa.BinaryArray:
        return slices(self._data, self._body_end + self._width, self._topic_end)

    @cached_property
    def _scan(self) -> PropertyScan:
        return PropertyScan(self.properties_raw)

    # --- columns ------------------------------------------------------------------------------

    def column(self, name: str) -> pa.Array:
        """The column of that name, of the type that columns.COMMITLOG gives it."""
        array: pa.Array = getattr(self, name)
        return array

    def typed_column(self, field: pa.Field) -> pa.Array:
        """The column as that field: Arrow names the elements of lists in more than one way."""
        return self.column(field.name).cast(field.type)

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """All columns of `schema`, in its order."""
        columns = [self.typed_column(field) for field in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    @cached_property
    def topic(self) -> pa.Array:
        return as_text(self._raw_topic)

    @cached_property
    def queue_id(self) -> pa.Array:
        return self._head_column("queue_id")

    @cached_property
    def queue_offset(self) -> pa.Array:
        return self._head_column("queue_offset")

    @cached_property
    def physical_offset(self) -> pa.Array:
        return self._head_column("physical_offset")

    @cached_property
    def record_size(self) -> pa.Array:
        return self._head_column("record_size")

    @cached_property
    def born_time_ms(self) -> pa.Array:
        return self._head_column("born_time_ms")

    @cached_property
    def flag(self) -> pa.Array:
        return self._head_column("flag")

    @cached_property
    def sys_flag(self) -> pa.Array:
        return self._head_column("sys_flag")

    @cached_property
    def body_crc(self) -> pa.Array:
        return self._head_column("body_crc")

    @cached_property
    def store_time_ms(self) -> pa.Array:
        return pa.array(gather_ints(self._data, ">i8", self._store_time_at))

    @cached_property
    def timestamp(self) -> pa.Array:
        return self.store_time_ms.cast(pa.timestamp("ms", "UTC"))

    @cached_property
    def reconsume_times(self) -> pa.Array:
        return pa.array(self._tail["reconsume_times"].astype(np.int32))

    @cached_property
    def prepared_transaction_offset(self) -> pa.Array:
        # Below 0 it is the place in a batch.
        return pa.array(np.maximum(self._tail["prepared"].astype(np.int64), 0))

    @cached_property
    def in_queue(self) -> pa.Array:
        transaction = self._flags & TRANSACTION_MASK
        return pa.array((transaction == 0) | (transaction == TRANSACTION_COMMIT))

    @cached_property
    def born_host(self) -> pa.Array:
        return _hosts(slices(self._data, self._at + 48, self._store_time_at))

    @cached_property
    def store_host(self) -> pa.Array:
        return _hosts(slices(self._data, self._store_time_at + 8, self._tail_at))

    @cached_property
    def stored_body(self) -> pa.Array:
        return slices(self._data, self._body_at, self._body_end)

    @cached_property
    def body(self) -> pa.Array:
        """Decompressed where its producer compressed it; null where it does not decompress."""
        compressed = np.flatnonzero(self._flags & COMPRESSED)
        if not len(compressed):
            return self.stored_body
        bodies = self.stored_body.to_pylist()
        for row in compressed.tolist():
            try:
                bodies[row] = decompress(bodies[row], int(self._flags[row]))
            except BodyError:
                bodies[row] = None
        return pa.array(bodies, pa.binary())

    @cached_property
    def properties_raw(self) -> pa.Array:
        return slices(self._data, self._properties_at, self._end)

    @cached_property
    def properties(self) -> pa.Array:
        """What is not filled in by the store. In Python, record by record."""
        found = (decode_properties(text) for text in as_text(self.properties_raw).to_pylist())
        items = [[item for item in one.items() if item[0] not in OWN_PROPERTIES] for one in found]
        return pa.array(items, COMMITLOG.field("properties").type)

    @cached_property
    def record(self) -> pa.Array:
        return slices(self._data, self._at, self._end)

    @cached_property
    def tag(self) -> pa.Array:
        return self._scan.text("TAGS")

    @cached_property
    def tag_code(self) -> pa.Array:
        encoded = self.tag.dictionary_encode()
        hashes = np.array(
            [java_hash(tag) for tag in encoded.dictionary.to_pylist()], dtype=np.int64
        )
        codes = np.zeros(len(self), dtype=np.int64)
        tagged = np.asarray(encoded.is_valid())
        codes[tagged] = hashes[np.asarray(encoded.indices.drop_null(), dtype=np.int64)]
        # Topics of that length are few; only they are worth a look at their bytes.
        for row in np.flatnonzero(self._topic_length == len(SCHEDULE_TOPIC)).tolist():
            codes[row] = tag_code_of(
                self.topic[row].as_py(),
                self.tag[row].as_py() or "",
                self._scan.text("DELAY")[row].as_py(),
                self.store_time_ms[row].as_py(),
            )
        return pa.array(codes)

    @cached_property
    def keys(self) -> pa.Array:
        """What the index has them under, but for keys of batches."""
        indexed = self._flags & TRANSACTION_MASK != TRANSACTION_ROLLBACK
        return self._scan.keys(indexed)

    def marks(self) -> tuple[Ints, list[bytes]]:
        """Rows of records that begin a numbered batch, and the batch's key in the index."""
        return self._scan.marks()

    @cached_property
    def _light(self) -> tuple[pa.Array, pa.Array]:
        return self._scan.light_queues(np.asarray(self.in_queue))

    @cached_property
    def light_queues(self) -> pa.Array:
        return self._light[0]

    @cached_property
    def light_offsets(self) -> pa.Array:
        return self._light[1]

    def _head_column(self, name: str) -> pa.Array:
        values = self._head[name]
        return pa.array(values.astype(values.dtype.newbyteorder("=")))


def _hosts(packed: pa.BinaryArray) -> pa.Array:
    """Few hosts, many records: each host is written out once."""
    encoded = packed.dictionary_encode()
    texts = []
    for raw in encoded.dictionary.to_pylist():
        address, port = unpack_host(raw)
        texts.append(f"[{address}]:{port}" if ":" in address else f"{address}:{port}")
    return pa.array(texts, pa.string()).take(encoded.indices)


assert all(hasattr(RecordBlock, name) for name in COMMITLOG.names)
