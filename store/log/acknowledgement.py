"""Which part of the log is acknowledged, and which is visible: four offsets and their relations.

| offset       | the log below it                                    | moved by          |
|--------------|-----------------------------------------------------|-------------------|
| `appended`   | is in the mapping: a kill of the process loses none | the appender      |
| `flushed`    | survives a power loss of this machine               | the flush service |
| `confirmed`  | survives what the store promises to survive         | the flush service |
| `dispatched` | is in queues and index: readers see it              | dispatch          |

With one copy of the log `confirmed` is `flushed`. ASYNC and SYNC are two values of one rule. ASYNC:
a put is acknowledged once it is appended, and may be visible from then on. SYNC: a record is not
visible before it is confirmed, and a put is acknowledged once it is visible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.config import FlushMode

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.log.watermark import Watermark


class Acknowledgement:
    """Tells whether a put is acknowledged, and which records may be dispatched.

    Thread: any. Locks: those of the watermarks.
    """

    def __init__(
        self,
        mode: FlushMode,
        appended: Callable[[], int],
        flushed: Watermark,
        dispatched: Watermark,
    ) -> None:
        # Constant after construction.
        self._appended = appended
        self.flushed = flushed
        self.dispatched = dispatched
        #: A put is acknowledged when it is appended, and the appender may dispatch it.
        self.at_append = mode is FlushMode.ASYNC

    @property
    def confirmed(self) -> int:
        return self.flushed.value

    def limit(self) -> int:
        """Physical offset below which records may be dispatched."""
        return self._appended() if self.at_append else self.confirmed

    def lag(self) -> int:
        """Bytes that may be dispatched but are not yet dispatched."""
        return self.limit() - self.dispatched.value

    def is_acknowledged(self, end_offset: int) -> bool:
        """Whether a put that ends at this physical offset is acknowledged."""
        return self.at_append or self.dispatched.value >= end_offset

    def when_acknowledged(
        self, end_offset: int, callback: Callable[[BaseException | None], None]
    ) -> None:
        """Call `callback` once, when a put that ends at this physical offset is acknowledged: with
        None, or with the error if it can never be. Runs immediately on this thread, or on a store
        thread."""
        if self.at_append:
            callback(None)
        else:
            self.dispatched.call_when(end_offset, callback)

    def wait(self, end_offset: int, timeout_s: float) -> bool:
        """Block until a put that ends at this physical offset is acknowledged. Returns False after
        `timeout_s`. Raises the watermark's failure."""
        return self.at_append or self.dispatched.wait_for(end_offset, timeout_s)
