"""Settings of a store in files, and names in the store's root."""

from __future__ import annotations

from dataclasses import dataclass, field

from migration.formats import UNITS_PER_FILE, IndexLayout

#: Directories of deleted topics until their files are removed. Not inside `consumequeue/`, where
#: RocketMQ would mistake them for topics.
TRASH_DIRECTORY = "file_queue_trash"


@dataclass(frozen=True, kw_only=True)
class FileQueueOptions:
    """Settings of a store in files. The sizes must be those that RocketMQ uses."""

    units_per_file: int = UNITS_PER_FILE
    index: IndexLayout = field(default_factory=IndexLayout)
    #: Physical offset from which on tags are indexed; None: none. See state.FileLayout.
    index_tags_from: int | None = None
    #: Well below the usual limit of 1024 for a process, which other parts share.
    max_open_files: int = 256
    #: About 1 KB each. Other queues are read from their files again at the next access, which takes
    #: about 0.1 ms.
    max_cached_queues: int = 16_384
