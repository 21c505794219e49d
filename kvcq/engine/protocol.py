"""The key-value engine that the tables stand on: a small protocol, so that tests have a twin."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

Pair = tuple[bytes, bytes]


class RowColumns:
    """Rows as their keys and their values: each pair of a list is an object that the garbage
    collector looks at."""

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
        """Also with a list of pairs."""
        return isinstance(other, list | RowColumns) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]  # they change


AnyRows = list[Pair] | RowColumns


@dataclass(slots=True)
class KvBatch:
    """Changes that take effect together. Applied in the order: delete ranges, deletes, puts.

    Plain lists, so that a batch which the engine could not take now can be written again.
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
        """AnyRows with start <= key < end, rising, or falling when `reverse`; at most `limit`.

        `fill_cache` off: a bulk read, whose blocks must not push others out of the cache.
        """
        ...

    def write(self, batch: KvBatch) -> None:
        """All of the batch, or nothing. Raises EngineBusyError on a write stall, EngineFullError
        when the disk is full: the same batch may be written again later."""
        ...

    def flush(self) -> None:
        """Everything written so far survives a crash, all families at one point."""
        ...

    def back_up(self) -> Path:
        """A new directory with a copy of all families at one point: what was written before is in
        it, and what is written later changes nothing of it. Whoever asked for it removes it."""
        ...

    def settle(self) -> None:
        """Set right what is due; to be called every second or so.

        `flush_deletions`; after a full disk, writes are taken again when there is room; what became
        durable is noted, so that the next opening can prove it. Otherwise cheap. Says nothing about
        durability.
        """
        ...

    def flush_deletions(self) -> None:
        """Range deletions leave memory when there are enough of them to slow reads, which is as
        slow as `flush`."""
        ...

    def compact(
        self,
        family: str,
        start: bytes | None = None,
        end: bytes | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        """Rewrite the range down to the last level; what is deleted or expired is gone after."""
        ...

    def ingest(self, family: str, paths: Sequence[Path], *, move: bool) -> None:
        """Add sorted files, written by the engine's own file writer, to the family."""
        ...

    def statistics(self) -> dict[str, float]: ...

    def close(self) -> None:
        """Flush, then let go of the directory. Repeatable; later calls raise EngineClosedError."""
        ...
