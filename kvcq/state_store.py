"""Rows of state in RocksDB: a family beside units, bounds and index, in the same database.

| key | value                                                        |
|-----|--------------------------------------------------------------|
| `p` | i64, the physical offset up to which the rows are            |

All other keys are in store/state/rows.py. The write-ahead log is off: rows lost in a crash are
restored from the records behind the point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq.engine import KvBatch
from kvcq.tables import BOUNDS, DISPATCHED_KEY, STATE, pack_i64, unpack_i64
from store.base import Lock, retry_while_busy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvcq.engine import KvEngine, Pair
    from store.state import Changes

_POINT_KEY = b"p"


class KvStateStore:
    """StateStore on a KvEngine, which the queues may share.

    Thread: any; `apply` one at a time.
    """

    def __init__(self, engine: KvEngine, *, flushes: Callable[[], bool] = lambda: False) -> None:
        """`flushes`: whether nothing else flushes the engine, as when queues are in files."""
        # Constant after construction.
        self._engine = engine
        self._flushes = flushes
        self._writing = Lock()
        # Queues are dispatched after the state, so the state has everything that they have. Written
        # under _writing, read freely.
        rows = (engine.get(STATE, _POINT_KEY), engine.get(BOUNDS, DISPATCHED_KEY))
        self._point = max((unpack_i64(row) for row in rows if row is not None), default=0)

    @property
    def point(self) -> int:
        """Physical offset: the rows reflect exactly the records below it."""
        return self._point

    def apply(self, changes: Changes, end_offset: int) -> None:
        """Apply the changes of the record that ends at `end_offset`, and move the point, in one
        batch.

        Raises StoreBusyError if they cannot be applied now; nothing is changed then.
        """
        with self._writing:
            assert end_offset > self._point, f"a record before {end_offset}, behind {self._point}"
            rows = [(key, value) for key, value in changes.written.items() if value is not None]
            batch = KvBatch(
                puts={STATE: [(_POINT_KEY, pack_i64(end_offset)), *rows]},
                deletes=[(STATE, key) for key, value in changes.written.items() if value is None],
                delete_ranges=[(STATE, *each) for each in changes.ranges],
            )
            self._engine.write(batch)
            self._point = end_offset

    def advance(self, end_offset: int) -> None:
        """Move the point to `end_offset`; the caller guarantees that no record up to there changes
        rows."""
        with self._writing:  # a snapshot does that while records are applied
            self._point = max(self._point, end_offset)

    def get(self, key: bytes) -> bytes | None:
        return self._engine.get(STATE, key)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._engine.multi_get(STATE, keys)

    def scan(self, start: bytes, end: bytes, limit: int | None = None) -> Sequence[Pair]:
        return self._engine.scan(STATE, start, end, limit=limit)

    def put_counted(self, rows: Sequence[Pair]) -> None:
        self._engine.write(KvBatch(puts={STATE: list(rows)}))

    def flush(self) -> None:
        """Make the rows and the point durable by flushing the engine. Raises what it raises."""
        self.note_point()
        if self._flushes():
            self._engine.flush()

    def note_point(self) -> None:
        """Write the point to the database. Waits for a stall to pass; raises StoreBusyError if it
        does not."""
        with self._writing:
            batch = KvBatch(puts={STATE: [(_POINT_KEY, pack_i64(self._point))]})
            retry_while_busy(lambda: self._engine.write(batch))

    def close(self) -> None:
        self._engine.close()
