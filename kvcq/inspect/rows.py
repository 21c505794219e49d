"""Reads the families of a database that is compared with a log, page by page."""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING

from kvcq.engine import pages
from kvcq.errors import CorruptValueError
from kvcq.inspect.findings import Kind
from kvcq.inspect.lookup import Lookup
from kvcq.tables import topic_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcq.engine import AnyRows, KvEngine, Pair
    from kvcq.inspect.log import LogCheck
    from kvcq.inspect.side import OpenedStore
    from store.topics import Admission

ROCKSDB = "rocksdb"
#: Errors of unpacking a row of another layout.
BAD_ROW = (CorruptValueError, ValueError, struct.error)

_PAGE_ROWS = 16_384


class Rows(Lookup):
    """One database and one log, which was walked."""

    def __init__(
        self,
        engine: KvEngine,
        opened: OpenedStore,
        log: LogCheck,
        checkpoint: int,
        admission: Admission,
        ending: frozenset[str],
    ) -> None:
        """`ending`: topics and light queues whose rows the next opening removes."""
        super().__init__(opened.segments, log, checkpoint)
        self.engine = engine
        self.admission = admission
        self.tell = partial(opened.findings.add, side=ROCKSDB)
        self._progress = opened.progress
        self._ending = prefixes_of(ending)

    def pages(self, family: str, what: str, expected: int) -> Iterator[list[Pair]]:
        """Yield all rows, ascending, except those of `ending`."""
        seen = 0
        for page in pages(self.engine, family, rows=_PAGE_ROWS):
            yield without(self._ending, page)
            seen += len(page)
            self._progress(what, min(1.0, seen / max(1, seen, expected)))
        self._progress(what, 1.0)

    def bad_row(self, family: str, key: bytes, value: bytes) -> None:
        self.tell(Kind.BAD_ROW, family, "a row of this layout", f"{key.hex()} = {value.hex()}")


def prefixes_of(names: frozenset[str]) -> tuple[bytes, ...]:
    """The prefixes of the rows of these topics and light queues."""
    return tuple(topic_prefix(name) for name in sorted(names))


def without(prefixes: tuple[bytes, ...], rows: AnyRows) -> list[Pair]:
    """The rows that begin with none of the prefixes."""
    return [row for row in rows if not row[0].startswith(prefixes)] if prefixes else [*rows]
