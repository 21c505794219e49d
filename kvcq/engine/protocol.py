"""The protocol of the key-value engine below the tables; small, so that tests can have a second
implementation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

Pair = tuple[bytes, bytes]


class RowColumns:
    """Rows as columns of keys and values. A list of pairs would have an object for each, which the
    garbage collector visits."""

    __slots__ = ("key_column", "value_column")

    def __init__(self, key_column: list[bytes], value_column: list[bytes]) -> None:
        self.key_column = key_column
        self.value_column = value_column

    def append(self, row: Pair) -> None:
        key, value = row
        self.key_column.append(key)
        self.value_column.append(value)

    def __iter__(self) -> Iterator[Pair]:
        return zip(self.key_column, self.value_column, strict=True)

    def __len__(self) -> int:
        return len(self.key_column)

    def __eq__(self, other: object) -> bool:
        """Also compares with a list of pairs."""
        return isinstance(other, list | RowColumns) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]  # they change


AnyRows = list[Pair] | RowColumns


@dataclass(slots=True)
class KvBatch:
    """Changes that take effect together. Applied in this order: range deletes, deletes, puts.

    Plain lists, so that a batch can be written again after the engine was busy.
    """

    puts: dict[str, AnyRows] = field(default_factory=dict)  # by family
    deletes: list[tuple[str, bytes]] = field(default_factory=list)  # (family, key)
    delete_ranges: list[tuple[str, bytes, bytes]] = field(default_factory=list)  # end exclusive

    def put(self, family: str, key: bytes, value: bytes) -> None:
        self.puts.setdefault(family, []).append((key, value))


class KvEngine(Protocol):
    """Ordered byte keys in named families. Keys compare as unsigned bytes.

    Thread: any; calls may overlap. No iterator, snapshot or handle leaves the engine.
    """

    def get(self, family: str, key: bytes) -> bytes | None: ...

    def multi_get(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def scan(
        self,
        family: str,
        start: bytes,
        end: bytes,
        *,
        limit: int | None = None,
        reverse: bool = False,
        fill_cache: bool = True,
    ) -> list[Pair]:
        """At most `limit` rows with start <= key < end, ascending, or descending if `reverse`.

        `fill_cache` off: for bulk reads, whose blocks must not evict others from the cache.
        """
        ...

    def write(self, batch: KvBatch) -> None:
        """Write the whole batch, or nothing. Raises EngineBusyError during a write stall,
        EngineFullError if the disk is full; the same batch may be retried later."""
        ...

    def flush(self) -> None:
        """Make everything written so far durable, all families at one point."""
        ...

    def back_up(self) -> Path:
        """Create a directory with a copy of all families at one point: it has everything written
        before, and later writes do not change it. The caller must remove it."""
        ...

    def settle(self) -> None:
        """Do periodic work; to be called about every second.

        Flushes range deletions when there are enough of them to slow reads, which is as slow as
        `flush`; accepts writes again when a full disk has room. Otherwise cheap. Guarantees no
        durability.
        """
        ...

    def compact(
        self,
        family: str,
        start: bytes | None = None,
        end: bytes | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        """Rewrite the range down to the last level, which removes deleted and expired rows.
        `progress` is called between pieces of the work."""
        ...

    def ingest(self, family: str, paths: Sequence[Path], *, move: bool) -> None:
        """Add sorted files, written by the engine's own file writer, to the family."""
        ...

    def statistics(self) -> dict[str, float]: ...

    def close(self) -> None:
        """Flush, then release the directory. Repeatable; later calls raise EngineClosedError."""
        ...
