"""Errors of reading a log in columns."""

from __future__ import annotations

from store.errors import CorruptRecordError, StoreError


class LogLayoutError(StoreError):
    """The directory does not contain a commit log of contiguous segments."""


class SegmentDamageError(CorruptRecordError):
    """Bytes inside the log that are not a record."""

    def __init__(self, segment: str, physical_offset: int, reason: str) -> None:
        super().__init__(physical_offset, reason)
        self.args = (f"{segment}: {self}",)
        self.segment = segment

    def __reduce__(self) -> tuple[type, tuple[str, int, str]]:
        # The error is pickled on its way from a worker to the driver.
        return type(self), (self.segment, self.physical_offset, self.reason)
