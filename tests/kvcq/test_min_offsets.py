"""The min offset: the first unit in the log, found without reading the queue, never stale."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq.engine import KvBatch
from kvcq.errors import CorruptValueError
from kvcq.keys import FAMILIES, UNITS, unit_key
from kvcq.memory import MemoryEngine
from kvcq.min_offsets import MinOffsets
from kvcq.values import pack_unit
from store.consume_queue import CqUnit


def engine_with(offsets: dict[int, int]) -> MemoryEngine:
    engine = MemoryEngine(FAMILIES)
    rows = [
        (unit_key("T", 0, offset), pack_unit(CqUnit(physical, 10, 0, 0)))
        for offset, physical in offsets.items()
    ]
    engine.write(KvBatch(puts={UNITS: rows}))
    return engine


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=40),
    st.integers(0, 5),
    st.integers(0, 40),
    st.lists(st.integers(0, 2500), min_size=1, max_size=5).map(sorted),
)
def test_the_first_unit_at_or_above_the_logs_start(
    steps: list[int], first: int, dropped: int, starts: list[int]
) -> None:
    """Also when the compaction filter has taken some of the dead units already."""
    physical = 0
    units: dict[int, int] = {}
    for number, step in enumerate(steps):
        units[first + number] = physical
        physical += step
    max_offset = first + len(steps)
    lowest = starts[0]
    dead = [offset for offset, place in units.items() if place < lowest]
    for offset in dead[:dropped]:
        del units[offset]
    cache = MinOffsets(engine_with(units))
    for start in starts:
        live = [offset for offset, place in units.items() if place >= start]
        assert cache.get("T", 0, max_offset, start) == (live[0] if live else max_offset)


def test_a_cached_min_is_not_used_once_its_unit_expired() -> None:
    cache = MinOffsets(engine_with({0: 0, 1: 100, 2: 200}))
    assert cache.get("T", 0, 3, 0) == 0
    assert cache.get("T", 0, 3, 150) == 2
    assert cache.get("T", 0, 3, 201) == 3


def test_a_deleted_topics_min_is_forgotten() -> None:
    engine = engine_with({5: 500})
    cache = MinOffsets(engine)
    assert cache.get("T", 0, 6, 0) == 5
    engine.write(
        KvBatch(
            deletes=[(UNITS, unit_key("T", 0, 5))],
            puts={UNITS: [(unit_key("T", 0, 0), pack_unit(CqUnit(900, 10, 0, 0)))]},
        )
    )
    cache.forget("T", [0])
    assert cache.get("T", 0, 1, 0) == 0


def test_damage_is_an_error_not_an_expired_unit() -> None:
    engine = MemoryEngine(FAMILIES)
    engine.write(KvBatch(puts={UNITS: [(unit_key("T", 0, 0), b"rubbish")]}))
    with pytest.raises(CorruptValueError):
        MinOffsets(engine).get("T", 0, 1, 0)
