"""Opens the files. After a crash, cuts them back to what was durable.

Writes nothing if the store was closed cleanly. A cut that a crash interrupts is repeated at the
next opening.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
from typing import TYPE_CHECKING, NamedTuple

from migration.errors import IndexFileError, QueueFileError
from migration.files.checkpoint import read_checkpoint
from migration.files.options import TRASH_DIRECTORY
from store.base import no_progress

if TYPE_CHECKING:
    from pathlib import Path

    from migration.files.checkpoint import DeadTopic
    from migration.files.handles import FileHandles
    from migration.files.index import IndexFileSet
    from migration.files.queues import FileQueueSet
    from store.base import Progress

logger = logging.getLogger(__name__)


class Found(NamedTuple):
    """The state of the files after opening."""

    dispatched_offset: int  # dispatching continues from here
    durable_offset: int  # data derived from records below it survives a crash
    index_is_stale: bool  # it must be cleared before the first write
    clean: bool = True  # as in the checkpoint on disk
    dead_topics: tuple[DeadTopic, ...] = ()


def open_files(
    root: Path,
    queues: FileQueueSet,
    index: IndexFileSet,
    handles: FileHandles,
    progress: Progress,
) -> Found:
    """Open the files. Without a checkpoint, they are compared with the log by dispatching all of it
    again. Raises StoreFormatError for a damaged checkpoint."""
    checkpoint = read_checkpoint(root)
    shutil.rmtree(root / TRASH_DIRECTORY, ignore_errors=True)
    if checkpoint is None:
        return _adopt(queues, index, progress)
    at = checkpoint.dispatched_offset
    if not checkpoint.clean:
        cut_queues(queues, checkpoint.durable_offset, progress, repair=True)
    stale = not _load_index(index, None if checkpoint.clean else checkpoint.durable_offset)
    if not checkpoint.clean:
        index.write_back()
        handles.sync(*handles.take_dirty())
    gone = checkpoint.indexed and not index.file_count
    if stale or gone or not queues.root.is_dir():
        # The index is damaged, or files are missing: rebuild everything.
        at = 0
    return Found(
        at,
        checkpoint.durable_offset,
        stale,
        checkpoint.clean,
        checkpoint.dead_topics,
    )


def _adopt(queues: FileQueueSet, index: IndexFileSet, progress: Progress) -> Found:
    """Open files that RocketMQ wrote. Existing units stay; the index is rebuilt from the log."""
    _load_index(index, None)  # loaded so that it can be cleared
    durable = 0
    names = list(queues.names())
    for done, name in enumerate(names):
        progress("reading queues", done / len(names))
        with contextlib.suppress(QueueFileError):  # raised again when the queue is used
            queue = queues.get(*name)
            durable = max(durable, queue.physical_end if queue else 0)
    return Found(0, durable, index_is_stale=True)


def _load_index(index: IndexFileSet, cut_at: int | None) -> bool:
    """Load the index. Returns whether it is valid. `cut_at`: after a crash, the physical offset
    above which it is not durable."""
    try:
        if cut_at is None:
            index.load()
        else:
            index.recover(cut_at)
    except IndexFileError as error:
        logger.warning("the key index is rebuilt from the log: %s", error)
        return False
    return True


def cut_queues(
    queues: FileQueueSet,
    physical_offset: int,
    progress: Progress = no_progress,
    *,
    repair: bool = False,
) -> None:
    """Remove units of records at or above the offset from all queues. `repair`: after a crash."""
    names = list(queues.names())
    for done, name in enumerate(names):
        progress("cutting queues", done / len(names))
        try:
            queue = queues.repair(*name) if repair else queues.get(*name)
        except QueueFileError as error:
            # A cut does not repair this. The error is raised again at every access to the queue.
            logger.error("left alone: %s", error)
            continue
        if queue is not None:
            queue.cut(physical_offset)
