"""All file consume queues of a store: `consumequeue/<topic>/<queue id>/<20 digits>`.

Only recently used queues are in memory; others are read from their files again on access.
Directories that are not named like a queue are ignored.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

from migration.errors import QueueNameError
from migration.files.queue import FileQueue
from migration.formats import entries_in, files_in, parse_queue_id
from store.base import Lock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from migration.files.handles import FileHandles

#: Longest name of a directory on usual file systems, bytes (NAME_MAX).
_NAME_MAX = 255


def check_name(name: str) -> None:
    """Raises QueueNameError for a topic or light queue that cannot name a directory."""
    if not name:
        raise QueueNameError(name, "it is empty")
    if "/" in name or "\0" in name:
        raise QueueNameError(name, "it has a '/' or a zero byte in it")
    if name in {".", ".."}:
        raise QueueNameError(name, "it refers to another directory")
    if len(name) * 4 > _NAME_MAX and len(name.encode()) > _NAME_MAX:
        raise QueueNameError(name, f"it is longer than {_NAME_MAX} bytes")


class FileQueueSet:
    """Finds and opens queues. Reads never create a queue on disk (H17).

    Thread: any. There is at most one object for a queue. Locks: `_lock` for the tables; held while
    a queue's directory is read.
    """

    def __init__(self, root: Path, file_bytes: int, handles: FileHandles, max_cached: int) -> None:
        # Constant after construction.
        self.root = root
        self._file_bytes = file_bytes
        self._handles = handles
        self._max_cached = max_cached
        self._lock = Lock()
        # Guarded by _lock. The first keeps recently used queues, the second has all in use.
        self._recent: OrderedDict[tuple[str, int], FileQueue] = OrderedDict()
        self._alive: weakref.WeakValueDictionary[tuple[str, int], FileQueue] = (
            weakref.WeakValueDictionary()
        )

    @property
    def cached_count(self) -> int:
        return len(self._recent)

    def get(self, topic: str, queue_id: int) -> FileQueue | None:
        """The queue; None without a directory. Raises QueueFileError if its files are invalid."""
        return self._find((topic, queue_id), create=False)

    def get_or_create(self, topic: str, queue_id: int) -> FileQueue:
        """The queue. Nothing is created on disk before the first write. Raises QueueNameError,
        QueueFileError."""
        queue = self._find((topic, queue_id), create=True)
        assert queue is not None
        return queue

    def _find(self, key: tuple[str, int], *, create: bool) -> FileQueue | None:
        with self._lock:
            queue = self._recent.get(key)
            if queue is not None:
                self._recent.move_to_end(key)
                return queue
            queue = self._alive.get(key)
            if queue is None:
                queue = self._load(key, create=create)
                if queue is None:
                    return None
                self._alive[key] = queue
            self._recent[key] = queue
            while len(self._recent) > self._max_cached:
                self._recent.popitem(last=False)
            return queue

    def _load(self, key: tuple[str, int], *, create: bool) -> FileQueue | None:
        topic, queue_id = key
        try:
            check_name(topic)
        except QueueNameError:
            if create:
                raise
            return None
        directory = f"{self.root}/{topic}/{queue_id}"
        if not create and not Path(directory).is_dir():
            return None
        return FileQueue(topic, queue_id, directory, self._file_bytes, self._handles).load()

    def repair(self, topic: str, queue_id: int) -> FileQueue:
        """Restore the size of files that a crash left short. Returns the queue."""
        with self._lock:
            directory = f"{self.root}/{topic}/{queue_id}"
            queue = FileQueue(topic, queue_id, directory, self._file_bytes, self._handles)
            self._alive[topic, queue_id] = queue.load(repair=True)
            self._recent.pop((topic, queue_id), None)
            return queue

    def count_files(self, topic: str, queue_id: int) -> int:
        """Number of the queue's files. Reads only names, so it is cheap for unused queues."""
        return sum(1 for _ in files_in(Path(self.root, topic, str(queue_id))))

    def remove_files(self, topic: str, queue_id: int) -> None:
        """Delete all files of a queue, even invalid ones."""
        with self._lock:
            self._alive.pop((topic, queue_id), None)
            self._recent.pop((topic, queue_id), None)
            for _, path in reversed([*files_in(Path(self.root, topic, str(queue_id)))]):
                self._handles.remove(str(path))

    def topics(self) -> list[str]:
        """Names of the topics and light queues that have a directory."""
        return [entry.name for entry in entries_in(self.root) if entry.is_dir()]

    def queue_ids(self, topic: str) -> list[int]:
        """Ids of the topic's queues that have a directory, ascending."""
        try:
            check_name(topic)
        except QueueNameError:
            return []
        entries = entries_in(Path(self.root, topic))
        ids = (parse_queue_id(entry.name) for entry in entries if entry.is_dir())
        return sorted(queue_id for queue_id in ids if queue_id is not None)

    def names(self) -> Iterator[tuple[str, int]]:
        """Every (topic, queue id) on disk."""
        for topic in self.topics():
            for queue_id in self.queue_ids(topic):
                yield topic, queue_id

    def move_topic_away(self, topic: str, target: Path) -> bool:
        """Move the topic's directory away with one rename. Returns whether there was one."""
        with self._lock:
            for key in [key for key in self._alive if key[0] == topic]:
                # Readers that still use the queue find no files.
                self._alive.pop(key, None)
                self._recent.pop(key, None)
            source = self.root / topic
            if not source.is_dir():
                return False
            source.rename(target)
            # After the rename: from now on no file can be opened by its old name.
            self._handles.forget_below(str(source))
            return True
