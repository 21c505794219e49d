"""Looks through one index file: size, header, slots, entries, and what the entries point at."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from migration.formats import (
    ENTRY_DTYPE,
    ENTRY_SIZE,
    HEADER,
    HEADER_SIZE,
    MAX_SECONDS,
    SLOT_DTYPE,
    SLOT_SIZE,
    IndexLayout,
    index_key,
    key_hashes,
)
from migration.plan.legacy_findings import UNCOVERED, Fault, Finding, Remedy
from store.format import SCHEDULE_TOPIC, java_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path
    from typing import BinaryIO

    import numpy.typing as npt

    from store.consume_queue import DispatchRequest

_CHUNK_SLOTS = 1 << 20
_CHUNK_ENTRIES = 1 << 18
#: UTF-16 units; an entry of a longer tag would be reported.
_LONGEST_TAG = 512


class TagEntries:
    """Whether RocketMQ indexed tags, as it does from 5.5 on, and since when."""

    def __init__(self) -> None:
        self.first: int | None = None  # physical offset of the first record whose tag is there
        self._untagged = False

    def saw(self, record: DispatchRequest, *, entry: bool) -> None:
        """A live entry of this record, and whether it is that of its tag."""
        if record.topic == SCHEDULE_TOPIC or not record.tag_code:
            return  # nothing tells
        self._untagged = True
        if entry and (self.first is None or record.physical_offset < self.first):
            self.first = record.physical_offset

    @property
    def since(self) -> int | None:
        """Physical offset from which on tags are indexed; None when they are not."""
        return 0 if self.first is None and not self._untagged else self.first


def check_index_file(
    path: Path,
    layout: IndexLayout,
    *,
    after: int,
    log_start: int,
    log_end: int,
    record_at: Callable[[int], DispatchRequest | None] | None,
    damaged_from: int | None = None,
    tags: TagEntries | None = None,
) -> Generator[Finding, None, int]:
    """Findings of one file; returns the physical offset of its last entry, or `after`.

    `after` is that of the file before. Entries below `log_start` are not held against records.
    From `damaged_from` on the log is known to be damaged: a record that cannot be read there is no
    fault of the index.
    """
    size = path.stat().st_size
    if size != layout.file_bytes:
        fault = Fault.TRUNCATED if size < layout.file_bytes else Fault.OVERSIZED
        detail = f"{size} bytes, not {layout.file_bytes}"
        yield _finding(path, min(size, layout.file_bytes), fault, detail)
    try:
        with path.open("rb") as file:
            live = _Live(log_start, log_end, record_at, damaged_from, tags or TagEntries())
            return (yield from _check(path, file, layout, after, live))
    except OSError as error:
        yield _finding(path, 0, Fault.UNREADABLE, str(error))
        return after


def first_offset_of(path: Path) -> int | None:
    """Physical offset of the file's first entry; None when it has none, or cannot say."""
    try:
        with path.open("rb") as file:
            data = file.read(HEADER_SIZE)
    except OSError:
        return None  # the check of the file says so
    if len(data) < HEADER_SIZE:
        return None
    _, _, begin_offset, _, _, next_entry = HEADER.unpack(data)
    return int(begin_offset) if next_entry > 1 else None


class _Live(NamedTuple):
    """The log that the entries point into."""

    start: int
    end: int
    record_at: Callable[[int], DispatchRequest | None] | None
    damaged_from: int | None
    tags: TagEntries


def _finding(path: Path, position: int, fault: Fault, detail: str, count: int = 1) -> Finding:
    return Finding(path, position, fault, detail, Remedy.REBUILD_INDEX, count=count)


def _check(
    path: Path,
    file: BinaryIO,
    layout: IndexLayout,
    after: int,
    live: _Live,
) -> Generator[Finding, None, int]:
    data = file.read(HEADER_SIZE)
    if len(data) < HEADER_SIZE:
        return after
    begin_ms, end_ms, begin_offset, end_offset, slots_used, next_entry = HEADER.unpack(data)
    if not 0 <= next_entry <= layout.entries:
        detail = f"the next entry is {next_entry}, of {layout.entries}"
        yield _finding(path, 36, Fault.BAD_HEADER, detail)
        return after
    if not 0 <= slots_used <= layout.slots:
        detail = f"{slots_used} slots are used, of {layout.slots}"
        yield _finding(path, 32, Fault.BAD_HEADER, detail)
    if next_entry <= 1:
        return after
    if begin_ms > end_ms or begin_offset > end_offset:
        detail = f"begins at {begin_ms} ms, {begin_offset}, ends at {end_ms} ms, {end_offset}"
        yield _finding(path, 0, Fault.BAD_HEADER, detail)
    if begin_offset < after:
        detail = f"begins at {begin_offset}, the file before it ends at {after}"
        yield _finding(path, 16, Fault.OVERLAPPING, detail)
    last = max(after, int(end_offset))
    yield from _check_slots(path, file, layout, next_entry)
    yield from _check_entries(path, file, layout, next_entry, live)
    return last


def _check_slots(
    path: Path, file: BinaryIO, layout: IndexLayout, next_entry: int
) -> Generator[Finding, None, None]:
    file.seek(HEADER_SIZE)
    for first in range(0, layout.slots, _CHUNK_SLOTS):
        wanted = min(_CHUNK_SLOTS, layout.slots - first) * SLOT_SIZE
        data = file.read(wanted)
        slots = np.frombuffer(data, dtype=SLOT_DTYPE, count=len(data) // SLOT_SIZE)
        bad = np.flatnonzero((slots < 0) | (slots >= next_entry))
        if bad.size:
            slot = first + int(bad[0])
            detail = f"slot {slot} names entry {slots[bad[0]]}, of {next_entry - 1}"
            yield _finding(path, layout.slot_position(slot), Fault.BAD_CHAIN, detail, len(bad))
        if len(data) < wanted:
            return


def _check_entries(
    path: Path,
    file: BinaryIO,
    layout: IndexLayout,
    next_entry: int,
    log: _Live,
) -> Generator[Finding, None, None]:
    file.seek(layout.entry_position(1))
    highest = -1
    for first in range(1, next_entry, _CHUNK_ENTRIES):
        wanted = min(_CHUNK_ENTRIES, next_entry - first)
        data = file.read(wanted * ENTRY_SIZE)
        entries = np.frombuffer(data, dtype=ENTRY_DTYPE, count=len(data) // ENTRY_SIZE)
        numbers = np.arange(first, first + len(entries))
        offsets = entries["physical_offset"].astype(np.int64)
        past = offsets >= log.end
        # One that points past the log says nothing about those behind it.
        credible = np.where(past, -1, offsets)
        peaks = np.maximum.accumulate(np.concatenate(([highest], credible)))
        for fault, bad, detail in (
            (
                Fault.BAD_CHAIN,
                (entries["previous"] < 0) | (entries["previous"] >= numbers),
                "an entry leads to itself or forward",
            ),
            (
                Fault.IMPOSSIBLE,
                (entries["key_hash"] < 0) | (entries["seconds"] < 0) | (offsets < 0),
                "a negative hash, time or offset",
            ),
            (
                Fault.FALLING,
                ~past & (offsets < peaks[:-1]),
                "an entry points before the one before it",
            ),
            (Fault.PAST_LOG, past, f"the log ends at {log.end}"),
        ):
            at = np.flatnonzero(bad)
            if at.size:
                position = layout.entry_position(first + int(at[0]))
                yield _finding(path, position, fault, detail, len(at))
        if log.record_at is not None:
            live = np.flatnonzero((offsets >= log.start) & (offsets < log.end))
            yield from _check_records(path, layout, first, entries, live.tolist(), log)
        if len(entries) < wanted:
            return  # cut short, reported with the size
        highest = int(peaks[-1])


def _check_records(
    path: Path,
    layout: IndexLayout,
    first: int,
    entries: npt.NDArray[np.void],
    live: list[int],
    log: _Live,
) -> Generator[Finding, None, None]:
    record_at, damaged_from = log.record_at, log.damaged_from
    assert record_at is not None
    known: tuple[int, DispatchRequest | None, set[int]] = (-1, None, set())
    for index in live:
        key_hash, offset, _, _ = entries[index].item()
        if offset != known[0]:  # keys of one record stand together
            record = record_at(offset)
            keys = () if record is None else record.keys
            topic = "" if record is None else record.topic
            hashes = key_hashes([index_key(topic, key) for key in keys]).tolist() if keys else []
            known = (offset, record, set(hashes))
        position = layout.entry_position(first + index)
        if known[1] is None:
            if damaged_from is not None and offset >= damaged_from:
                continue
            detail = f"nothing at physical offset {offset}"
            yield _finding(path, position, Fault.NO_RECORD, detail)
        elif key_hash in known[2]:
            log.tags.saw(known[1], entry=False)
        elif _is_of_tag(known[1], key_hash):
            log.tags.saw(known[1], entry=True)
        else:
            detail = f"the record at {offset} has no key of this hash{UNCOVERED}"
            yield _finding(path, position, Fault.WRONG_RECORD, detail)


def _is_of_tag(record: DispatchRequest, key_hash: int) -> bool:
    """Whether the entry may be that of the record's tag, which RocketMQ 5.5 indexes as well.

    Its key is `topic#T#tag`. The record's tag code is the hash of the tag, all but its length.
    """
    if record.topic == SCHEDULE_TOPIC:
        return True  # its tag code is the due time
    hashed = java_hash(f"{record.topic}#T#") & 0xFFFFFFFF
    for _ in range(_LONGEST_TAG):
        hashed = 31 * hashed & 0xFFFFFFFF
        value = (hashed + record.tag_code) & 0xFFFFFFFF
        absolute = abs(value - (1 << 32) if value >> 31 else value)
        if (0 if absolute > MAX_SECONDS else absolute) == key_hash:
            return True
    return False
