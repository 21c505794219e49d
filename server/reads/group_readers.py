"""Tracks which streams read for which reader group, to notify a second reader of a queue.

A reader group keeps offsets and does not share work: each of its consumers reads every message,
which is rarely what a second process of the same program is meant for. Nothing is rejected.
"""

from __future__ import annotations

from itertools import islice
from time import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from server.reads.queue_growth import QueueKey

#: Queues of one request that are looked up, and streams of the group in whose sets: some
#: milliseconds at most.
MAX_QUEUES_COMPARED = 1000
MAX_READERS_COMPARED = 64


class GroupReader:
    """One stream of a group."""

    def __init__(self, group: str, reader: str, address: str, follows: Container[QueueKey]) -> None:
        self.group = group
        self.reader = reader
        self.address = address
        self.follows = follows
        self.since_ms = int(time() * 1000)
        self.is_told = False


class Shared(NamedTuple):
    """A queue that another stream of the group followed first."""

    with_whom: GroupReader
    queue: QueueKey


class GroupReaders:
    """The readers of all groups. An entry for each stream, none for its queues. Owned by the event
    loop's thread."""

    def __init__(self) -> None:
        self._by_group: dict[str, list[GroupReader]] = {}

    def join(
        self, group: str, reader: str, address: str, follows: Container[QueueKey]
    ) -> GroupReader:
        """A stream of the group begins; must be paired with `leave`. `follows` returns the queues
        that it follows."""
        joined = GroupReader(group, reader, address, follows)
        self._by_group.setdefault(group, []).append(joined)
        return joined

    def leave(self, reader: GroupReader) -> None:
        readers = self._by_group[reader.group]
        readers.remove(reader)
        if not readers:
            del self._by_group[reader.group]

    def shared(self, reader: GroupReader, added: Iterable[QueueKey]) -> Shared | None:
        """An earlier stream of another reader that follows one of the added queues.

        Reported once for each stream. A reader that reconnects is not told of its own former
        stream.
        """
        readers = self._by_group[reader.group]
        if reader.is_told or readers[0] is reader:
            return None
        before = [
            each
            for each in readers[: readers.index(reader)]
            if each.reader != reader.reader or not reader.reader
        ]
        for queue in islice(added, MAX_QUEUES_COMPARED if before else 0):
            for other in before[:MAX_READERS_COMPARED]:
                if queue in other.follows:
                    reader.is_told = True
                    return Shared(other, queue)
        return None
