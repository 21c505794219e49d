"""The point of the state: what its rows have."""

from __future__ import annotations

import threading

from kvcq.state_store import KvStateStore
from kvcq.tables.keys import FAMILIES, STATE
from store.state import Changes
from tests.support.memory_engine import MemoryEngine


def test_the_point_does_not_fall_behind_a_record_that_is_applied_meanwhile() -> None:
    """Else a snapshot of then, and a start from it, apply the record twice."""
    engine = MemoryEngine((*FAMILIES, STATE))
    state = KvStateStore(engine)
    state.apply(Changes(state), 100)
    dispatch = threading.Thread(target=state.apply, args=(Changes(state), 300))

    class WhileItIsCompared(int):
        def __gt__(self, other: int) -> bool:
            dispatch.start()
            if not state._writing.locked():
                dispatch.join()
            return int(self) > other

    state.advance(WhileItIsCompared(50))
    dispatch.join()
    state.note_point()
    assert state.point == KvStateStore(engine).point == 300
