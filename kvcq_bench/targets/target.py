"""What a scenario runs against: a server, one of our own or any other, or a store in the process.

All methods are blocking, and may be called from any thread unless they say otherwise.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from kvcq_client import Boundary, Bounds, Message, Pulled, Queue, StoredMessage


@dataclass(frozen=True, slots=True)
class Resources:
    """What the serving process holds; None where that cannot be known, as of a far server."""

    resident_bytes: int | None = None  # with pages of files that are mapped or shared
    private_bytes: int | None = None  # without them: what it would need on a machine that is full
    open_files: int | None = None
    cpu_s: float | None = None

    def known(self) -> dict[str, float]:
        """Those that are known, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def resources_of(pid: int) -> Resources:
    """What that process holds now."""
    import psutil  # of the extra `bench`

    process = psutil.Process(pid)
    with process.oneshot():
        times, memory = process.cpu_times(), process.memory_info()
        # Of Linux: resident pages that are neither of a file nor of shared memory.
        private = memory.rss - memory.shared
        return Resources(memory.rss, private, process.num_fds(), times.user + times.system)


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

    def create_topics(self, topics: Mapping[str, int]) -> None: ...

    def delete_topic(self, name: str) -> None: ...

    def bounds(self, queues: Sequence[Queue]) -> dict[Queue, Bounds]: ...

    def pull(self, queue: Queue, offset: int, max_messages: int) -> Pulled: ...

    def read_to_end(
        self, starts: Mapping[Queue, int]
    ) -> Iterator[tuple[Queue, list[StoredMessage]]]:
        """All that is there, each queue in its order, in lists of one queue."""
        ...

    def query(self, topic: str, key: str, max_messages: int) -> list[StoredMessage]: ...

    def search_time(self, topic: str, queue_id: int, time_ms: int, boundary: Boundary) -> int: ...

    def statistics(self) -> dict[str, float]: ...

    def resources(self) -> Resources: ...

    def disk_bytes(self) -> dict[str, int]:
        """Allocated bytes below the store directory, by its first level; {} when it is far."""
        ...

    def reopen(self, settings: Mapping[str, Any] | None = None, *, kill: bool = False) -> float:
        """Close (or kill) and open again, with changed store settings: seconds until ready.

        Writers go on over a kill: what they have under way is sent again. They do not over a close.
        Raises NotPossibleHereError.
        """
        ...

    def compact(self) -> None:
        """Rewrite all that is in the consume queues and the key index; returns when it is done.

        Raises NotPossibleHereError.
        """
        ...

    def close(self) -> None: ...
