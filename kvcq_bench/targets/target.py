"""What a scenario runs against: a server, one of our own or any other, or a store in the process.

All methods are blocking, and may be called from any thread unless they say otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from kvcq_bench.machine import Used
    from kvcq_client import Bounds, Message, Pulled, Queue, StoredMessage


class Writer(Protocol):
    """Sends lists of messages, many under way at a time. Thread: one."""

    def write(
        self, messages: Sequence[Message], on_done: Callable[[Mapping[int, Exception]], None]
    ) -> None:
        """Sent, or buffered; blocks when too much is under way. `on_done` comes on any thread."""
        ...

    def flush(self) -> None:
        """All has its outcome."""
        ...

    def close(self) -> None: ...


class Target(Protocol):
    """Something with topics and messages."""

    name: str
    #: Of the run, where it is ours; None where it is far.
    directory: Path | None

    def writer(self) -> Writer: ...

    def put_later(self, messages: Sequence[Message], due_ms: Sequence[int]) -> None:
        """Delayed messages, up to 1,024, each due at its time, ms since 1970."""
        ...

    def create_topics(self, topics: Mapping[str, int]) -> None: ...

    def bounds(self, queues: Sequence[Queue]) -> dict[Queue, Bounds]: ...

    def pull(self, queue: Queue, offset: int, max_messages: int) -> Pulled: ...

    def read_to_end(
        self, starts: Mapping[Queue, int]
    ) -> Iterator[tuple[Queue, list[StoredMessage]]]:
        """All that is there, each queue in its order, in lists of one queue."""
        ...

    def statistics(self) -> dict[str, float]: ...

    def used(self) -> Used | None:
        """What the serving process uses; None when it is far."""
        ...

    def disk_bytes(self) -> dict[str, int]:
        """Allocated bytes below the store directory, by its first level; {} when it is far."""
        ...

    def reopen(
        self,
        settings: Mapping[str, Any] | None = None,
        *,
        kill: bool = False,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> float:
        """Close (or kill) and open again, with changed store settings: seconds until ready.

        `meanwhile` is called, and not counted, while it is down.

        Writers go on over a kill: what they have under way is sent again. They do not over a close.
        Raises NotPossibleHereError.
        """
        ...

    def close(self) -> None: ...
