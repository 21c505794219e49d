"""Compares acknowledged messages with the messages read: none lost or repeated, in order, with the
correct body.

A stream goes to one queue, and has one writer at a time, which numbers its messages. So two
counters for each stream are enough: 16 bytes for any number of messages. Rejected messages are
stored by number, and must be few.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

from kvcq_bench.errors import CheckFailedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kvcq_bench.bodies import BodyMaker
    from kvcq_client import StoredMessage

MAX_FAILED = 100_000


class Ledger:
    """Counters of all streams of a run. Thread: any, but one writer for each stream."""

    def __init__(self, streams: int, bodies: BodyMaker) -> None:
        self.bodies = bodies
        self.sent = np.zeros(streams, np.int64)
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._failed: set[tuple[int, int]] = set()
        self.acknowledged_messages = 0

    def acknowledged(self, count: int) -> None:
        with self._lock:
            self.acknowledged_messages += count

    def failed(self, messages: Iterable[tuple[int, int]]) -> None:
        """Note rejected messages, which may be stored or not: stream and number of each."""
        with self._lock:
            self._failed.update(messages)

    def check_failed(self) -> None:
        """Raises CheckFailedError if too many were rejected. `failed` does not raise it, because a
        client only logs what its callback raises."""
        if self.failed_messages > MAX_FAILED:
            raise CheckFailedError(f"more than {MAX_FAILED} messages were refused")

    @property
    def failed_messages(self) -> int:
        return len(self._failed)

    def may_miss(self, stream: int, begin: int, end: int) -> bool:
        """Whether all numbers from `begin` to `end` (exclusive) were rejected."""
        return end - begin <= len(self._failed) and all(
            (stream, number) in self._failed for number in range(begin, end)
        )


class Checker:
    """Reads streams once, each in order, and compares. Thread: one.

    Raises CheckFailedError at the first difference.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._next = np.zeros(len(ledger.sent), np.int64)
        self.checked_messages = 0

    def see(self, messages: Sequence[StoredMessage], stream: int | None = None) -> None:
        """Check the next messages of their queues; `stream`: the one that they must belong to."""
        check = self._ledger.bodies.check
        expected = self._next
        for message in messages:
            found, number = check(message.body)
            if stream is not None and found != stream:
                raise CheckFailedError(f"stream {found} in the queue of stream {stream}: {message}")
            wanted = int(expected[found])
            if number != wanted and (
                number < wanted or not self._ledger.may_miss(found, wanted, number)
            ):
                what = "repeated or out of order" if number < wanted else "messages are missing"
                raise CheckFailedError(
                    f"stream {found}: number {number} where {wanted} was due, {what}: {message}"
                )
            expected[found] = number + 1
        self.checked_messages += len(messages)

    def finish(self, streams: Iterable[int]) -> None:
        """Check that every acknowledged message of these streams was seen."""
        for stream in streams:
            seen, sent = int(self._next[stream]), int(self._ledger.sent[stream])
            if seen != sent and not self._ledger.may_miss(stream, seen, sent):
                raise CheckFailedError(
                    f"stream {stream}: {seen} messages were read of {sent} that were sent"
                )
