"""The checkpoint of the file queues: their durable position, in a file in the store's root.

One line of JSON, then its CRC-32 in hex. It is outside `consumequeue/` and `index/`, where RocketMQ
would mistake it for a queue. It is replaced by a rename, so a crash leaves the old or the new one.

Invariants: everything derived from records below `durable_offset` is durable. All records below
`dispatched_offset`, which is not above it, were dispatched. `clean` is only true if nothing was
written since, so no later data has to be checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from migration.formats import ChecksumError, read_checked, write_checked
from store.errors import StoreFormatError

if TYPE_CHECKING:
    from pathlib import Path

CHECKPOINT_FILE = "file_queue_checkpoint"
_VERSION = 1


class DeadTopic(NamedTuple):
    """A deleted topic, whose records below this offset are dead. The key index still has them."""

    topic: str
    below_offset: int


class FileQueueCheckpoint(NamedTuple):
    """The content of the file; by default that of an empty store."""

    dispatched_offset: int = 0
    durable_offset: int = 0
    clean: bool = True
    applied_deletions: int = 0  # as a store of format 1 counted them
    dead_topics: tuple[DeadTopic, ...] = ()
    indexed: bool = False  # the index has records; if it is missing, it is rebuilt


def read_checkpoint(root: Path) -> FileQueueCheckpoint | None:
    """The checkpoint of a store directory; None if there is none.

    Raises StoreFormatError if it is damaged. Without the file, all queues are compared with the
    log.
    """
    path = root / CHECKPOINT_FILE
    try:
        fields = read_checked(path)
    except ChecksumError:
        raise StoreFormatError(path, "its checksum does not match") from None
    if fields is None:
        return None
    if fields.pop("version", None) != _VERSION:
        raise StoreFormatError(path, "another version wrote it")
    fields["dead_topics"] = tuple(DeadTopic(*pair) for pair in fields["dead_topics"])
    return FileQueueCheckpoint(**fields)


def note_whole(root: Path, log_end: int, *, indexed: bool) -> None:
    """Record durably that the files have the whole log up to `log_end`, where the next opening
    continues. The caller must have verified that, and made the files durable. `indexed`: whether
    index files exist."""
    found = read_checkpoint(root) or FileQueueCheckpoint()
    whole = found._replace(dispatched_offset=log_end, durable_offset=log_end, clean=True)
    write_checkpoint(root, whole._replace(indexed=indexed))


def write_checkpoint(root: Path, checkpoint: FileQueueCheckpoint) -> None:
    """Replace the checkpoint. Durable on return."""
    write_checked(root / CHECKPOINT_FILE, {"version": _VERSION, **checkpoint._asdict()})
