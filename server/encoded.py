"""Answers that another process has read and encoded: here, or in the front of the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Held:
    """A response that the caller's front holds. It goes out from there when it is sent."""

    __slots__ = ("_size", "drop", "number", "prefix")

    def __init__(
        self, number: int, size: int, drop: Callable[[], None], prefix: bytes = b""
    ) -> None:
        self.number = number
        self._size = size
        #: Sent before it.
        self.prefix = prefix
        #: It is not sent: the front lets go of it.
        self.drop = drop

    def __len__(self) -> int:
        """Bytes of it."""
        return len(self.prefix) + self._size

    def behind(self, prefix: bytes) -> Held:
        """The same, as part of a message that begins so; in place of this one."""
        return Held(self.number, self._size, self.drop, prefix + self.prefix)


class Encoded(NamedTuple):
    """An answer as it goes over the wire."""

    message_count: int
    cost_bytes: int  # of its records, or of its encoded messages
    data: bytes | Held
