"""Counts unreadable messages found by shared groups, and logs each once."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from store.base import Lock
from store.errors import CorruptMessageError, DamagedQueueError

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)

#: Errors that name the unreadable message, and the offset to continue at.
Damage = CorruptMessageError | DamagedQueueError
DAMAGE = (CorruptMessageError, DamagedQueueError)

_MOST_TOLD = 1024


class Damages:
    """Counts unreadable messages, and logs each once. Thread: any. Memory: _MOST_TOLD messages."""

    def __init__(self) -> None:
        self._lock = Lock()
        # Guarded by _lock. The messages logged last; a message that drops out is logged again.
        self._told: dict[tuple[str, str, int, int, bool], None] = {}
        self._met = 0
        self._skipped = 0

    def note(self, group: str, error: Damage, *, is_skipped: bool) -> None:
        """Record that a receiver found the message. `is_skipped`: otherwise it blocks its queue."""
        place = (group, error.topic, error.queue_id, error.queue_offset, is_skipped)
        with self._lock:
            if place in self._told:
                return
            self._told[place] = None
            if len(self._told) > _MOST_TOLD:
                del self._told[next(iter(self._told))]
            self._met += not is_skipped
            self._skipped += is_skipped
        if is_skipped:
            logger.error("group %r skipped a message, as its receiver asked: %s", group, error)
        else:
            logger.error(
                "group %r receives nothing from this queue until the message is readable or "
                "skipped: %s",
                group,
                error,
            )

    def statistics(self) -> Mapping[str, float]:
        """Metrics by name. Each message counts once, however often it is read."""
        return {
            "store.shared_damaged_met": self._met,
            "store.shared_damaged_skipped": self._skipped,
        }
