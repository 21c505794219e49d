"""Detects the sizes of RocketMQ's files in a directory. Read-only."""

from __future__ import annotations

from collections import Counter
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from migration.formats import (
    ENTRY_SIZE,
    HEADER_SIZE,
    INDEX_DIRECTORY,
    QUEUE_DIRECTORY,
    SLOT_SIZE,
    UNIT_SIZE,
    UNITS_PER_FILE,
    IndexLayout,
    files_in,
    index_files_in,
    queues_in,
)
from migration.plan.log_survey import segment_files
from migration.state import FileLayout, Phase, read_state
from store.errors import StoreFormatError
from store.store_dir import DirKind, inspect

if TYPE_CHECKING:
    from pathlib import Path

#: Most queue files whose sizes are read.
_LOOKED_AT = 1000


def detect_segment_bytes(root: Path) -> int:
    """The common size of all segments. Raises StoreFormatError."""
    commitlog = root / "commitlog"
    try:
        paths = segment_files(commitlog)
    except OSError as error:
        raise StoreFormatError(commitlog, f"cannot be read: {error}") from error
    sizes = {path.stat().st_size for path in paths}
    if not paths:
        raise StoreFormatError(commitlog, "has no segments: there is nothing to take over")
    size = max(sizes)
    starts = [int(path.name) for path in paths]
    steps = {after - before for before, after in pairwise(starts)}
    if len(sizes) == 1 and any(step > size and step % size == 0 for step in steps):
        lacking = sum(step // size - 1 for step in steps)
        raise StoreFormatError(
            commitlog,
            f"{lacking} or more segments are missing between the others. A broker whose "
            "storePathCommitLog names several directories spreads them: move all of them into "
            "this commitlog/ (with the broker stopped), then try again",
        )
    if steps:
        # From the names: the last file may be short.
        size = min(steps)
    if size < 4096 or size % 4096:
        raise StoreFormatError(
            commitlog, f"segments of {size} bytes: only multiples of 4096 can be taken over"
        )
    return size


def refuse_other_layouts(root: Path) -> None:
    """Raises StoreFormatError if the broker's log is not in `commitlog/`."""
    if any(path.is_dir() for path in root.glob("dledger-*")):
        raise StoreFormatError(
            root,
            "has its log in dledger-*/ (enableDLegerCommitLog=true). DLedger wraps the records "
            "there, and they cannot be taken over: first move the messages to a broker without it",
        )
    commitlog = root / "commitlog"
    if (root / "consumequeue").is_dir() and (
        not commitlog.is_dir() or not segment_files(commitlog)
    ):
        raise StoreFormatError(
            root,
            "has queues, and no segments in commitlog/. A broker with another storePathCommitLog "
            "has them there: move them into this commitlog/ (with the broker stopped), then try "
            "again",
        )


def detect_layout(
    root: Path,
    *,
    units_per_file: int | None = None,
    index_slots: int | None = None,
    index_entries: int | None = None,
) -> FileLayout:
    """Sizes of queue and index files: the given ones, the rest detected from the files.

    Raises StoreFormatError.
    """
    return FileLayout(
        units_per_file or _units_per_file(root), *_index_layout(root, index_slots, index_entries)
    )


def layout_given(
    root: Path, units_per_file: int | None, index_slots: int | None, index_entries: int | None
) -> FileLayout | None:
    """The sizes that an operator gave, completed from the files; None if none was given, or if the
    directory is not RocketMQ's: a kvcq store has its sizes stored. Raises StoreFormatError."""
    if units_per_file is None and index_slots is None and index_entries is None:
        return None
    state = read_state(root)
    being_taken_over = state is not None and state.phase is Phase.ADOPTING
    if inspect(root)[0] is not DirKind.ROCKETMQ and not being_taken_over:
        return None
    return detect_layout(
        root,
        units_per_file=units_per_file,
        index_slots=index_slots,
        index_entries=index_entries,
    )


def _units_per_file(root: Path) -> int:
    """The most frequent size of the first queue files; RocketMQ's default without files."""
    files = (path for *_, queue in queues_in(root / QUEUE_DIRECTORY) for _, path in files_in(queue))
    sizes = Counter(path.stat().st_size for path in islice(files, _LOOKED_AT))
    whole = {size: count for size, count in sizes.items() if size and size % UNIT_SIZE == 0}
    if not whole:
        return UNITS_PER_FILE
    return max(whole, key=lambda size: (whole[size], size)) // UNIT_SIZE


def _index_layout(root: Path, slots: int | None, entries: int | None) -> IndexLayout:
    """The layout of index files. A number that is None is computed from the size of the files."""
    default = IndexLayout()
    if slots is not None and entries is not None:
        return IndexLayout(slots, entries)
    sizes = {path.stat().st_size for path in index_files_in(root / INDEX_DIRECTORY)}
    if not sizes:
        return IndexLayout(slots or default.slots, entries or default.entries)
    if slots is None and entries is None and default.file_bytes in sizes:
        return default
    for size in sorted(sizes, reverse=True):
        if slots is not None:
            found, odd = divmod(size - HEADER_SIZE - SLOT_SIZE * slots, ENTRY_SIZE)
            layout = IndexLayout(slots, found)
        elif entries is not None:
            found, odd = divmod(size - HEADER_SIZE - ENTRY_SIZE * entries, SLOT_SIZE)
            layout = IndexLayout(found, entries)
        else:
            break
        if found > 0 and not odd:
            return layout
    raise StoreFormatError(
        root / INDEX_DIRECTORY,
        f"the sizes cannot be computed from index files of {max(sizes)} bytes: give RocketMQ's "
        "maxHashSlotNum and maxIndexNum with --index-slots and --index-entries "
        f"(bytes = {HEADER_SIZE} + {SLOT_SIZE} * slots + {ENTRY_SIZE} * entries)",
    )
