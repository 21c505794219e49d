"""How much one put may hold, and how much of it the event loop takes by itself.

Measured, processor time: a plain message 3 to 5 us, one in a queue that was not written to lately
20 us; a light queue, key or property up to 5 us, all steps together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from store.message import Message

#: Messages of one request.
MAX_MESSAGES = 10_000
#: Light queues, keys and properties of one request, over all its messages.
MAX_PARTS = 200_000

#: What is more than this goes to a thread.
INLINE_MESSAGES = 1_000
INLINE_PARTS = 1_000


class TooMuchError(InvalidArgumentError):
    """A put holds more than it may, or than the event loop takes by itself."""


class Budget:
    """What may still be taken of one put. Counts come first, before anything is copied."""

    __slots__ = ("_max_messages", "_max_parts", "_parts")

    def __init__(self, max_messages: int = MAX_MESSAGES, max_parts: int = MAX_PARTS) -> None:
        self._max_messages = max_messages
        self._max_parts = max_parts
        self._parts = 0

    def messages(self, count: int, field: str) -> None:
        """Raises InvalidArgumentError without messages, TooMuchError when there are too many."""
        if not count:
            raise InvalidArgumentError(field, "is empty")
        if count > self._max_messages:
            raise TooMuchError(field, f"{count} messages, more than {self._max_messages}")

    def parts(self, count: int, field: str) -> None:
        """So many more light queues, keys and properties. Raises TooMuchError."""
        self._parts += count
        if self._parts > self._max_parts:
            raise TooMuchError(
                field, f"more than {self._max_parts} light queues, keys and properties in all"
            )


def inline_budget() -> Budget:
    """What the event loop takes by itself."""
    return Budget(INLINE_MESSAGES, INLINE_PARTS)


def parts_of(message: Message) -> int:
    """Its light queues, keys and properties."""
    return len(message.keys) + len(message.light_queues) + len(message.properties or ())
