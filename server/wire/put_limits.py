"""Limits the size of a put, and the part that the event loop handles itself.

A plain message takes a few microseconds of processor time, one in a queue that was not written
recently some 20; a light queue, key or property up to 5, all steps together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from store.message import Message

#: Messages of one request.
MAX_MESSAGES = 10_000
#: The same of one call of RocketMQ's clients: they become values in one turn of the loop. The
#: official clients send one, or as many as their caller hands them.
MAX_SENT = 1024
#: Light queues, keys and properties of one request, over all its messages.
MAX_PARTS = 200_000

#: Larger requests go to a thread.
INLINE_MESSAGES = 1_000
INLINE_PARTS = 500
#: Characters of long tags: a tag's Java hash takes 60 ns for each.
INLINE_TAG_CHARACTERS = 1 << 16
#: A tag of no more characters is not counted.
SHORT_TAG = 64


class TooMuchError(InvalidArgumentError):
    """A put is larger than allowed, or larger than the event loop handles itself."""


class Budget:
    """What is left of a put's allowance. Counts are checked first, before anything is copied."""

    __slots__ = ("_max_messages", "_max_parts", "_parts", "_tag_characters")

    def __init__(
        self,
        max_messages: int = MAX_MESSAGES,
        max_parts: int = MAX_PARTS,
        max_tag_characters: int = 1 << 62,
    ) -> None:
        self._max_messages = max_messages
        self._max_parts = max_parts
        self._parts = 0
        self._tag_characters = max_tag_characters  # left

    def messages(self, count: int, field: str) -> None:
        """Count messages. Raises InvalidArgumentError without messages, TooMuchError if there are
        too many."""
        if not count:
            raise InvalidArgumentError(field, "is empty")
        if count > self._max_messages:
            raise TooMuchError(field, f"{count} messages, more than {self._max_messages}")

    def parts(self, count: int, field: str) -> None:
        """Count light queues, keys and properties. Raises TooMuchError."""
        self._parts += count
        if self._parts > self._max_parts:
            raise TooMuchError(
                field, f"more than {self._max_parts} light queues, keys and properties in all"
            )

    def tag(self, characters: int, field: str) -> None:
        """Count characters of tags, all together. Raises TooMuchError."""
        self._tag_characters -= characters
        if self._tag_characters < 0:
            raise TooMuchError(field, "has too many characters in all")


def inline_budget() -> Budget:
    """The budget for puts that the event loop handles itself."""
    return Budget(INLINE_MESSAGES, INLINE_PARTS, INLINE_TAG_CHARACTERS)


def parts_of(message: Message) -> int:
    """Number of its light queues, keys and properties; a long tag counts as several."""
    parts = len(message.keys) + len(message.light_queues) + len(message.properties or ())
    return parts + len(message.tag) // SHORT_TAG
