"""A block of records of one segment, with columns that are built on first use.

Has a view of the segment; numeric columns are copies. Not thread-safe.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from zlib_ng.zlib_ng import crc32

from migration.columnar.property_scan import PropertyScan
from migration.columnar.strings import Names, Strings
from migration.columnar.unaligned import gather, gather_ints
from store.format import (
    AT,
    BACK,
    BORN_HOST_V6,
    CRC_ITEM_BYTES,
    CRC_ITEM_PREFIX,
    CRC_MASK,
    FRONT,
    HOST_V4_BYTES,
    HOST_V6_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    SCHEDULE_TOPIC,
    STORE_HOST_V6,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
    crc_mismatch,
    java_hash,
    tag_code_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from migration.columnar.property_scan import LightQueues
    from migration.columnar.unaligned import Bools, Bytes, Ints

_CODES = {"i": ">i4", "q": ">i8"}
_HEAD, _TAIL = (np.dtype([(name, _CODES[code]) for name, code in run]) for run in (FRONT, BACK))
#: Additional bytes of an IPv6 host.
_MORE = HOST_V6_BYTES - HOST_V4_BYTES
_CRC_ITEM = np.dtype([("name", f"S{len(CRC_ITEM_PREFIX)}"), ("digits", "u1", (10,)), ("end", "u1")])
#: The value of each digit of a CRC item: the lowest digit comes first.
_DIGITS = 10 ** np.arange(10, dtype=np.int64)
assert _CRC_ITEM.itemsize == CRC_ITEM_BYTES


class RecordBlock:
    """Records that begin at `positions` of `data`, whose first byte has physical offset `base`.

    The positions are candidates: columns are only valid for the first `count_sound` records.
    """

    def __init__(self, data: Bytes, base: int, positions: Ints) -> None:
        self._data = data
        self._base = base
        self._at = positions
        self._head = gather(data, _HEAD, positions)

    def __len__(self) -> int:
        return len(self._at)

    def first(self, count: int) -> RecordBlock:
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
        """Number of leading records with a magic code, their own position, and consistent
        lengths."""
        magic = self._head["magic"].astype(np.int32)
        ok = (magic == MAGIC_V1) | (magic == MAGIC_V2)
        ok &= self._head["physical_offset"] == self._at + self._base
        ok &= (self._size >= MIN_RECORD_BYTES) & (self._end <= len(self._data))
        ok &= self._body_at + 3 <= self._end
        if not ok.all():
            # Check the others again: their lengths can only be read if all of it is in the data.
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
        """Index of the first record whose bytes do not match one of its CRCs, and which one."""
        view = self._data.data
        places = (self._at, self._body_at, self._body_end, self._properties_at, self._end)
        for row in np.flatnonzero(~self._whole_by_crc()).tolist():
            if reason := crc_mismatch(view, *(int(place[row]) for place in places)):
                return row, reason
        return None

    def _whole_by_crc(self) -> Bools:
        """Records that end with a matching CRC of all their bytes. They need no other check."""
        items_at = self._end - CRC_ITEM_BYTES
        view = self._data.data
        bounds = zip(self._at.tolist(), items_at.tolist(), strict=True)
        crcs = np.array([crc32(view[at:item_at]) & CRC_MASK for at, item_at in bounds])
        whole: Bools = items_at >= self._properties_at
        items = gather(self._data, _CRC_ITEM, items_at)
        whole &= (items["name"] == CRC_ITEM_PREFIX) & (items["end"] == 2)
        digits = items["digits"] - np.int64(ord("0"))
        whole &= ((digits >= 0) & (digits <= 9)).all(axis=1)
        whole &= digits @ _DIGITS == crcs
        return whole

    @cached_property
    def undecodable(self) -> Bools:
        """Poison records, whose topic or properties are not UTF-8. Dispatch skips them."""
        codes, topics = self._coded_topics
        bad: Bools = np.array([not _is_text(topic) for topic in topics], dtype=np.bool_)[codes]
        if not self._scan.is_ascii:
            bad |= np.array(
                [not _is_text(text) for text in self.strings("properties_raw").tolist()]
            )
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
        at: Ints = self._at + AT["store_time_ms"] + _MORE * ((self._flags & BORN_HOST_V6) > 0)
        return at

    @cached_property
    def _tail_at(self) -> Ints:
        behind = AT["reconsume_times"] - AT["store_time_ms"]
        at: Ints = self._store_time_at + behind + _MORE * ((self._flags & STORE_HOST_V6) > 0)
        return at

    @cached_property
    def _body_at(self) -> Ints:
        return self._tail_at + _TAIL.itemsize

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
        # At least two bytes follow in both versions: the length of the properties.
        two = gather_ints(self._data, ">i2", self._body_end)
        return np.where(self._width == 2, two, two >> 8)

    @cached_property
    def _topic_end(self) -> Ints:
        return self._body_end + self._width + self._topic_length

    @cached_property
    def _properties_at(self) -> Ints:
        return self._topic_end + 2

    @cached_property
    def _coded_topics(self) -> tuple[Ints, list[bytes]]:
        return self.strings("topic").coded()

    @cached_property
    def _scan(self) -> PropertyScan:
        return PropertyScan(self.strings("properties_raw"))

    # --- columns ------------------------------------------------------------------------------

    @cached_property
    def topic_names(self) -> Names:
        """The topics as text; invalid UTF-8 gets replacement characters, as in Java."""
        codes, topics = self._coded_topics
        return Names(codes, [topic.decode(errors="replace") for topic in topics])

    def head(self, name: str) -> npt.NDArray[np.signedinteger]:
        """A field of the fixed header, as wide as in the record."""
        values = self._head[name]
        return values.astype(values.dtype.newbyteorder("="))

    @cached_property
    def queue_id(self) -> Ints:
        return self._head["queue_id"].astype(np.int64)

    @cached_property
    def queue_offset(self) -> Ints:
        return self._head["queue_offset"].astype(np.int64)

    @cached_property
    def physical_offset(self) -> Ints:
        return self._head["physical_offset"].astype(np.int64)

    @property
    def record_size(self) -> Ints:
        return self._size

    @property
    def sys_flag(self) -> Ints:
        return self._flags

    @cached_property
    def store_time_ms(self) -> Ints:
        return gather_ints(self._data, ">i8", self._store_time_at)

    @property
    def reconsume_times(self) -> Ints:
        return self._tail["reconsume_times"].astype(np.int64)

    @property
    def prepared_transaction_offset(self) -> Ints:
        # A value below 0 is the place in a batch.
        return np.maximum(self._tail["prepared_transaction_offset"].astype(np.int64), 0)

    @cached_property
    def in_queue(self) -> Bools:
        transaction = self._flags & TRANSACTION_MASK
        standing: Bools = (transaction == 0) | (transaction == TRANSACTION_COMMIT)
        return standing

    @cached_property
    def indexed(self) -> Bools:
        """Whether the record's keys are in the key index."""
        kept: Bools = self._flags & TRANSACTION_MASK != TRANSACTION_ROLLBACK
        return kept

    def strings(self, name: str) -> Strings:
        """The bytes of a non-numeric field: for Spark's columns, or a host."""
        return Strings(
            self._data,
            *{
                "topic": (self._body_end + self._width, self._topic_end),
                "born_host": (self._at + 48, self._store_time_at),
                "store_host": (self._store_time_at + 8, self._tail_at),
                "stored_body": (self._body_at, self._body_end),
                "properties_raw": (self._properties_at, self._end),
                "record": (self._at, self._end),
            }[name],
        )

    @cached_property
    def tag(self) -> tuple[Ints, Strings]:
        """Rows with a tag, and the tag of each."""
        return self._scan.values("TAGS")

    @cached_property
    def tag_code(self) -> Ints:
        rows, tags = self.tag
        numbers, distinct = tags.coded()
        hashes = [java_hash(tag.decode(errors="replace")) for tag in distinct]
        codes = np.zeros(len(self), dtype=np.int64)
        codes[rows] = np.array(hashes, dtype=np.int64)[numbers]
        # Compare bytes only for topics of the right length, which are few.
        due = np.flatnonzero(self._topic_length == len(SCHEDULE_TOPIC)).tolist()
        if due:
            self._put_due_times(codes, due)
        return codes

    def _put_due_times(self, codes: Ints, rows: list[int]) -> None:
        texts: list[dict[int, str]] = []
        for at, values in (self.tag, self._scan.values("DELAY")):
            found = (value.decode(errors="replace") for value in values.tolist())
            texts.append(dict(zip(at.tolist(), found, strict=True)))
        tags, delays = texts
        names = self.topic_names
        for row in rows:
            topic, time_ms = names.values[names.codes[row]], int(self.store_time_ms[row])
            codes[row] = tag_code_of(topic, tags.get(row, ""), delays.get(row), time_ms)

    @cached_property
    def keys(self) -> tuple[Ints, Strings]:
        """The index keys of each record, by row, except keys of batches."""
        return self._scan.keys(self.indexed)

    def marks(self) -> tuple[Ints, list[bytes]]:
        """Rows of records that begin a numbered batch, and the batch's key in the index."""
        return self._scan.marks()

    @cached_property
    def light_queues(self) -> LightQueues:
        return self._scan.light_queues(self.in_queue)


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
