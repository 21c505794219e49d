"""Compares the index files of a store with its log, in a single walk over it.

Entries are in log order, so files and log are read in parallel: each run of records is compared
with its entries. Only entries for other records are looked up. The structure of files (sizes,
headers, slots, chains) is checked afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kvcq.inspect import Kind
from migration.files.queue_check import NOWHERE, UNCOVERED, falling
from migration.formats import (
    HEADER,
    HEADER_SIZE,
    MAX_SECONDS,
    SLOT_DTYPE,
    SLOT_SIZE,
    entries_in,
    index_files_in,
    index_key,
    key_hashes,
    read_entries,
)
from store.format import SCHEDULE_TOPIC, java_hash

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from migration.files.queue_check import Log, Tell
    from migration.formats import BoolArray, IndexLayout, IntArray
    from store.consume_queue import DispatchRequest

_CHUNK_SLOTS = 1 << 20
_CHUNK_ENTRIES = 1 << 15
_SCAN_ENTRIES = 1 << 18
#: In UTF-16 units. Entries of longer tags are reported as wrong.
_LONGEST_TAG = 512
_KNOWN_TAGS = 65_536
_HASH_BITS = 31

#: Topic and physical offset of a record: whether its keys must be in the index.
IsRequired = Callable[[str, int], bool]


class TagEntries:
    """Whether, and since when, RocketMQ indexed tags; it does from 5.5 on."""

    def __init__(self) -> None:
        self.first: int | None = None  # physical offset of the first record whose tag is indexed
        self.untagged = False  # a record with a tag has entries, but none for the tag

    @property
    def since(self) -> int | None:
        """Physical offset from which tags are indexed; None if they are not."""
        return 0 if self.first is None and not self.untagged else self.first


class _Entries(NamedTuple):
    """Entries in file order: physical offset, key hash, and place (file and entry number)."""

    offsets: IntArray
    hashes: IntArray
    files: IntArray
    numbers: IntArray

    def where(self, mask: BoolArray) -> _Entries:
        return _Entries(*(column[mask] for column in self))


_NO_ENTRIES = _Entries(*(np.empty(0, np.int64) for _ in range(4)))


class _Missing:
    """Records of one topic whose keys are in no file."""

    def __init__(self) -> None:
        self.count = 0
        self.last = -1  # physical offset


class IndexCheck:
    """All index files below one root. Call `take` with every record, then `finish`.

    Memory: some chunks of entries, and an entry for each topic with missing keys.
    """

    def __init__(
        self,
        root: Path,
        layout: IndexLayout,
        tell: Tell,
        *,
        log_start: int,
        is_required: IsRequired | None = None,
        lacks_tag: Callable[[Sequence[DispatchRequest]], list[DispatchRequest]] | None = None,
        cut_offset: int = NOWHERE,
    ) -> None:
        """`log_start`: entries below have expired. `is_required` is called for every record with
        missing keys, and at the end for the last one of each topic. `lacks_tag`: records, of those
        without a tag entry, that should have one. `cut_offset`: the next opening cuts entries from
        there on, and rebuilds the newest file's slots."""
        self._root = root
        self._layout = layout
        self._tell = tell
        self._log_start = log_start
        self._is_required = is_required
        self._lacks_tag = lacks_tag
        self._cut = cut_offset
        self._paths = [path for path in index_files_in(root / "index") if path.is_file()]
        #: Offsets of the first and last entry of each file that was read.
        self._spans: list[tuple[int, int]] = []
        self._faults = 0
        self._chunks = self._read()
        self._ahead = _NO_ENTRIES  # read, but not compared yet
        self._stray = [_NO_ENTRIES]  # entries for records outside the walk's runs
        self._is_read = False
        self._last_read = -1
        self._missing: dict[str, _Missing] = {}
        self._is_tag: dict[tuple[str, int, int], bool] = {}
        self.tags = TagEntries()
        self.entry_count = 0

    # --- beside the walk -------------------------------------------------------------------

    def take(self, requests: Sequence[DispatchRequest]) -> None:
        """Take the next records of the log, ascending, without gaps."""
        if not requests:
            return
        end = requests[-1].physical_offset + requests[-1].record_size
        while not self._is_read and self._last_read < end:
            chunk = next(self._chunks, None)
            if chunk is None:
                self._is_read = True
            elif len(chunk.offsets):
                # Not the last entry, which may be wrong.
                self._last_read = int(np.median(chunk.offsets))
                self._ahead = _Entries(*map(np.concatenate, zip(self._ahead, chunk, strict=True)))
        mine = self._ahead.offsets < end
        entries = self._ahead.where(mine)
        self._ahead = self._ahead.where(~mine)
        self._compare(requests, entries)

    def _compare(self, requests: Sequence[DispatchRequest], entries: _Entries) -> None:
        places = np.array([request[3] for request in requests], np.int64)
        record = np.searchsorted(places, entries.offsets, "right") - 1
        inside = (record >= 0) & (places[record] == entries.offsets) & (entries.hashes >= 0)
        if not inside.all():
            self._stray.append(entries.where(~inside))
            entries, record = entries.where(inside), record[inside]
        keys = [index_key(request[0], key) for request in requests for key in request[7]]
        counts = np.fromiter((len(request[7]) for request in requests), np.int64, len(requests))
        wanted = np.repeat(np.arange(len(requests)), counts) << _HASH_BITS | key_hashes(keys)
        there = record << _HASH_BITS | entries.hashes
        tagged: set[int] = set()  # records with an entry for their tag
        if not np.array_equal(wanted, there):
            tagged = self._look_closer(requests, entries, wanted, there)
        self._look_at_tags(requests, record, tagged)

    def _look_closer(
        self,
        requests: Sequence[DispatchRequest],
        entries: _Entries,
        wanted: IntArray,
        there: IntArray,
    ) -> set[int]:
        """Report wrong entries and keys without an entry. An entry that matches no key may be for a
        tag; returns the records with one."""
        tagged = set()
        for index in np.flatnonzero(~np.isin(there, wanted)).tolist():
            number, key_hash = int(there[index]) >> _HASH_BITS, int(entries.hashes[index])
            if self._is_of_tag(requests[number], key_hash):
                tagged.add(number)
            else:
                self._wrong(entries, index, requests[number])
        for number in np.unique(wanted[~np.isin(wanted, there)] >> _HASH_BITS).tolist():
            self._miss(requests[number])
        return tagged

    def _look_at_tags(
        self, requests: Sequence[DispatchRequest], record: IntArray, tagged: set[int]
    ) -> None:
        tags = self.tags
        if tagged:
            telling = [n for n in tagged if requests[n].topic != SCHEDULE_TOPIC]
            if telling and tags.first is None:
                tags.first = requests[min(telling)].physical_offset
        if tags.first is None and not tags.untagged:
            with_entries = (requests[number] for number in np.unique(record).tolist())
            tags.untagged = any(r.tag_code and r.topic != SCHEDULE_TOPIC for r in with_entries)
        if self._lacks_tag is not None:
            bare = [
                request
                for number, request in enumerate(requests)
                if request[5] and number not in tagged
            ]
            for request in self._lacks_tag(bare) if bare else ():
                self._miss(request)

    def _miss(self, request: DispatchRequest) -> None:
        topic, at = request.topic, request.physical_offset
        if self._is_required is not None and not self._is_required(topic, at):
            return
        missing = self._missing.setdefault(topic, _Missing())
        missing.count += 1
        missing.last = at

    def _is_of_tag(self, request: DispatchRequest, key_hash: int) -> bool:
        asked = (request.topic, request.tag_code, key_hash)
        answer = self._is_tag.get(asked)
        if answer is None:
            if len(self._is_tag) >= _KNOWN_TAGS:
                self._is_tag.clear()
            answer = self._is_tag[asked] = _is_of_tag(*asked)
        return answer

    def _wrong(self, entries: _Entries, index: int, record: DispatchRequest | None) -> None:
        self._faults += 1
        path = self._paths[int(entries.files[index])]
        offset = int(entries.offsets[index])
        if record is None:
            kind, found = Kind.NO_RECORD, "nothing at that physical offset"
        else:
            kind, found = Kind.WRONG_INDEX_ROW, f"a record without a key of this hash{UNCOVERED}"
        self._tell(
            kind,
            str(path.relative_to(self._root)),
            f"a record at {offset} with that key",
            found,
            physical_offset=offset,
            position=self._layout.entry_position(int(entries.numbers[index])),
        )

    def _read(self) -> Iterator[_Entries]:
        """Yield the entries of all files with a header, chunk by chunk."""
        for number, path in enumerate(self._paths):
            self._spans.append((NOWHERE, -1))
            try:
                with path.open("rb") as file:
                    data = file.read(HEADER_SIZE)
                    next_entry = HEADER.unpack(data)[5] if len(data) == HEADER_SIZE else 0
                    if next_entry > self._layout.entries:
                        continue  # reported with the structure
                    for first, rows in read_entries(file, self._layout, next_entry, _CHUNK_ENTRIES):
                        offsets = rows["physical_offset"].astype(np.int64)
                        if number == len(self._paths) - 1:
                            kept = self._kept(offsets)
                            rows, offsets = rows[:kept], offsets[:kept]
                        if not len(rows):
                            break
                        self.entry_count += len(rows)
                        begin = min(self._spans[number][0], int(offsets[0]))
                        self._spans[number] = begin, int(offsets.max())
                        entries = _Entries(
                            offsets,
                            rows["key_hash"].astype(np.int64),
                            np.full(len(rows), number),
                            np.arange(first, first + len(rows)),
                        )
                        yield entries.where(offsets >= self._log_start)
            except OSError:  # reported with the structure
                continue

    def _kept(self, offsets: IntArray) -> int:
        """How many of these entries the next opening keeps in the newest file."""
        cut = np.flatnonzero(offsets >= self._cut)
        return int(cut[0]) if cut.size else len(offsets)

    # --- afterwards ------------------------------------------------------------------------

    def finish(self, log: Log, is_required: IsRequired) -> None:
        """After the walk: report the remaining faults."""
        self._look_at_structure(log)
        for chunk in (self._ahead, *self._chunks):
            self._stray.append(chunk)
        for entries in self._stray:
            for index in np.flatnonzero(entries.offsets < log.end_offset).tolist():
                self._ask(log, entries, index)
        if not self._faults:  # otherwise these are consequences of reported faults
            self._tell_missing(is_required)

    def _ask(self, log: Log, entries: _Entries, index: int) -> None:
        offset, key_hash = int(entries.offsets[index]), int(entries.hashes[index])
        record = log.record_at(offset)
        if record is None:
            if not log.is_damaged(offset):
                self._wrong(entries, index, None)
            return
        keys = [index_key(record.topic, key) for key in record.keys]
        if key_hash not in key_hashes(keys).tolist() and not self._is_of_tag(record, key_hash):
            self._wrong(entries, index, record)

    def _tell_missing(self, is_required: IsRequired) -> None:
        told = set()
        for topic, missing in self._missing.items():
            if not is_required(topic, missing.last):
                continue
            behind = [n for n, (_, end) in enumerate(self._spans) if end >= missing.last]
            if behind:
                is_inside = self._spans[behind[0]][0] < missing.last
                kind = Kind.MISSING_INDEX_ROW if is_inside else Kind.MISSING
                path = self._paths[behind[0]]
                found = "no entry" if is_inside else "in no file before this one"
            else:
                # The original deletes its newest index file after a crash (H22).
                kind, path = Kind.ENDS_EARLY, [self._root / "index", *self._paths][-1]
                last = max((end for _, end in self._spans), default=-1)
                found = f"nothing above physical offset {last}"
            if (kind, path) in told:
                continue
            told.add((kind, path))
            self._tell(
                kind,
                str(path.relative_to(self._root)),
                f"the keys or the tag of the record at {missing.last}",
                found,
                topic=topic,
                physical_offset=missing.last,
                position=0,
                count=missing.count,
            )

    def _look_at_structure(self, log: Log) -> None:
        """Report faults of sizes, headers, slots and chains."""

        def tell(kind: Kind, path: Path, at: int, wanted: str, found: str, count: int = 1) -> None:
            self._faults += kind is not Kind.FOREIGN
            place = str(path.relative_to(self._root))
            self._tell(kind, place, wanted, found, position=at, count=count)

        for path in entries_in(self._root / "index"):
            if path not in self._paths:
                tell(Kind.FOREIGN, path, 0, "", "not named like an index file")
        after = -1
        for path in self._paths:
            is_cut = path == self._paths[-1] and self._cut < NOWHERE
            after = self._structure_of(path, log, after, tell, is_cut=is_cut)

    def _structure_of(
        self,
        path: Path,
        log: Log,
        after: int,
        tell: Callable[..., None],
        *,
        is_cut: bool,
    ) -> int:
        """Check one file. Returns the physical offset of its last entry, or `after`.

        `after`: the result for the previous file. `is_cut`: it is the newest file after a crash,
        whose end and slots the next opening rebuilds.
        """
        layout = self._layout
        size = path.stat().st_size
        if size > layout.file_bytes or (size < layout.file_bytes and not is_cut):
            kind = Kind.TRUNCATED if size < layout.file_bytes else Kind.OVERSIZED
            at = min(size, layout.file_bytes)
            tell(kind, path, at, f"{layout.file_bytes} bytes", f"{size} bytes")
        try:
            with path.open("rb") as file:
                data = file.read(HEADER_SIZE)
                if len(data) < HEADER_SIZE:
                    return after
                begin_ms, end_ms, begin, end, slots_used, next_entry = HEADER.unpack(data)
                if not 0 <= next_entry <= layout.entries:
                    wanted = f"a next entry of {layout.entries} at most"
                    tell(Kind.BAD_HEADER, path, 36, wanted, f"{next_entry}")
                    return after
                if not 0 <= slots_used <= layout.slots:
                    wanted = f"{layout.slots} used slots at most"
                    tell(Kind.BAD_HEADER, path, 32, wanted, f"{slots_used}")
                if next_entry <= 1:
                    return after
                if begin_ms > end_ms or begin > end:
                    found = f"one from {begin_ms} ms, {begin} to {end_ms} ms, {end}"
                    tell(Kind.BAD_HEADER, path, 0, "an end behind the begin", found)
                if begin < after:
                    wanted = f"entries from {after} on, where the file before it ends"
                    tell(Kind.OVERLAPPING, path, 16, wanted, f"entries from {begin} on")
                if not is_cut:
                    self._look_at_slots(path, file, next_entry, tell)
                    self._look_at_chains(path, file, next_entry, log, tell)
                return max(after, int(end))
        except OSError as error:
            tell(Kind.UNREADABLE, path, 0, "", str(error))
            return after

    def _look_at_slots(
        self, path: Path, file: BinaryIO, next_entry: int, tell: Callable[..., None]
    ) -> None:
        layout = self._layout
        file.seek(HEADER_SIZE)
        for first in range(0, layout.slots, _CHUNK_SLOTS):
            wanted = min(_CHUNK_SLOTS, layout.slots - first) * SLOT_SIZE
            data = file.read(wanted)
            slots = np.frombuffer(data, dtype=SLOT_DTYPE, count=len(data) // SLOT_SIZE)
            bad = np.flatnonzero((slots < 0) | (slots >= next_entry))
            if bad.size:
                slot = first + int(bad[0])
                entries = f"slot {slot} to name one of {next_entry - 1} entries"
                at = layout.slot_position(slot)
                tell(Kind.BAD_CHAIN, path, at, entries, f"{slots[bad[0]]}", len(bad))
            if len(data) < wanted:
                return

    def _look_at_chains(
        self, path: Path, file: BinaryIO, next_entry: int, log: Log, tell: Callable[..., None]
    ) -> None:
        highest = -1
        for first, entries in read_entries(file, self._layout, next_entry, _SCAN_ENTRIES):
            numbers = np.arange(first, first + len(entries))
            offsets = entries["physical_offset"].astype(np.int64)
            past = offsets >= log.end_offset
            falls, highest = falling(offsets, past, highest)
            for kind, bad, wanted, found in (
                (
                    Kind.BAD_CHAIN,
                    (entries["previous"] < 0) | (entries["previous"] >= numbers),
                    "an entry that leads to one before it",
                    "one that leads to itself or forward",
                ),
                (
                    Kind.IMPOSSIBLE,
                    (entries["key_hash"] < 0) | (entries["seconds"] < 0) | (offsets < 0),
                    "an entry",
                    "a negative hash, time or offset",
                ),
                (
                    Kind.FALLING_OFFSET,
                    falls,
                    "an entry that points behind the one before it",
                    "one that points before it",
                ),
                (
                    Kind.PAST_LOG,
                    past,
                    f"an entry that points below the log's end, {log.end_offset}",
                    "one that points behind it",
                ),
            ):
                at = np.flatnonzero(bad)
                if at.size:
                    position = self._layout.entry_position(first + int(at[0]))
                    tell(kind, path, position, wanted, found, len(at))


def _is_of_tag(topic: str, tag_code: int, key_hash: int) -> bool:
    """Whether the entry may be for the record's tag, which RocketMQ 5.5 also indexes.

    Its key is `topic#T#tag`. The record's tag code is the tag's hash, so only the tag's length is
    unknown.
    """
    if topic == SCHEDULE_TOPIC:
        return True  # its tag code is the due time
    hashed = java_hash(f"{topic}#T#") & 0xFFFFFFFF
    for _ in range(_LONGEST_TAG):
        hashed = 31 * hashed & 0xFFFFFFFF
        value = (hashed + tag_code) & 0xFFFFFFFF
        absolute = abs(value - (1 << 32) if value >> 31 else value)
        if (0 if absolute > MAX_SECONDS else absolute) == key_hash:
            return True
    return False
