"""What reading a log in columns raises."""

from __future__ import annotations

from store.errors import StoreError


class LogLayoutError(StoreError):
    """The directory does not hold a commit log that can be read as one run of segments."""


class LogDamageError(StoreError):
    """Bytes inside the log that are no record, where a record must be."""

    def __init__(self, segment: str, offset: int, reason: str) -> None:
        super().__init__(f"{segment}: {reason} at physical offset {offset}")
        self.segment = segment
        self.offset = offset
        self.reason = reason

    def __reduce__(self) -> tuple[type, tuple[str, int, str]]:
        # Crosses from a worker to the driver, pickled.
        return type(self), (self.segment, self.offset, self.reason)
