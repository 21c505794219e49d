"""The interface of targets: a server, kvcq's or another, or a store in this process.

Unless they say otherwise, all methods block and may be called from any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from kvcq_bench.machine import Used
    from kvcq_client import Bounds, Message, Pulled, Queue, StoredMessage


class Writer(Protocol):
    """Sends lists of messages, many in flight at a time. Thread: one."""

    def write(
        self, messages: Sequence[Message], on_done: Callable[[Mapping[int, Exception]], None]
    ) -> None:
        """Send or buffer the messages; blocks while too many are in flight. `on_done` is called on
        any thread."""
        ...

    def flush(self) -> None:
        """Block until all messages have a result."""
        ...

    def close(self) -> None: ...


class Target(Protocol):
    """A system with topics and messages."""

    name: str
    #: Directory of the run if the target uses it; None for a server elsewhere.
    directory: Path | None

    def writer(self) -> Writer: ...

    def put_later(self, messages: Sequence[Message], due_ms: Sequence[int]) -> None:
        """Put delayed messages, up to 1,024, each due at its time, ms since 1970."""
        ...

    def create_topics(self, topics: Mapping[str, int]) -> None: ...

    def bounds(self, queues: Sequence[Queue]) -> dict[Queue, Bounds]: ...

    def pull(self, queue: Queue, offset: int, max_messages: int) -> Pulled: ...

    def read_to_end(
        self, starts: Mapping[Queue, int]
    ) -> Iterator[tuple[Queue, list[StoredMessage]]]:
        """Yield all messages, each queue in order, in lists of one queue."""
        ...

    def statistics(self) -> dict[str, float]: ...

    def used(self) -> Used | None:
        """Resource usage of the serving process; None if it is on another machine."""
        ...

    def disk_bytes(self) -> dict[str, int]:
        """Allocated bytes of each entry in the store directory; {} if it is on another machine."""
        ...

    def reopen(
        self,
        settings: Mapping[str, Any] | None = None,
        *,
        kill: bool = False,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> float:
        """Close (or kill) and reopen with changed store settings. Returns the seconds until ready.

        `meanwhile` is called while the target is down; its time is not counted. Writers continue
        across a kill, and send messages in flight again, but not across a close. Raises
        NotPossibleHereError.
        """
        ...

    def close(self) -> None: ...
