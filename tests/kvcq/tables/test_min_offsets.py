"""The min offset: the first unit in the log, found without reading the queue, never stale."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq.engine.protocol import KvBatch
from kvcq.errors import CorruptValueError
from kvcq.tables.keys import FAMILIES, UNITS, unit_key
from kvcq.tables.min_offsets import MinOffsets
from store.consume_queue import CqUnit
from tests.support.memory_engine import MemoryEngine
from tests.support.rows import pack_unit

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcq.engine.protocol import Pair


class CountingEngine(MemoryEngine):
    scans = 0

    def scan(self, *args: Any, **options: Any) -> list[Pair]:  # noqa: ANN401 - passed on
        self.scans += 1
        return super().scan(*args, **options)


def engine_with(offsets: dict[int, int]) -> CountingEngine:
    engine = CountingEngine(FAMILIES)
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
    last = max(units.values())
    lowest = starts[0]
    dead = [offset for offset, place in units.items() if place < lowest]
    for offset in dead[:dropped]:
        del units[offset]
    cache = MinOffsets(engine_with(units))
    for start in starts:
        live = [offset for offset, place in units.items() if place >= start]
        assert cache.get("T", 0, max_offset, last, start) == (live[0] if live else max_offset)


#: Physical offset by queue offset: as the log grows, in bursts, ever faster, ever slower.
SHAPES: dict[str, Callable[[int], int]] = {
    "even": lambda n: 1000 * n,
    "bursts": lambda n: 1000 * n + n // 500 * 10_000_000,
    "faster": lambda n: round(1.004**n * 1000) + n,
    "slower": lambda n: round((n + 1) ** 0.1 * 1e9) + n,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_few_scans_find_it_in_a_long_queue(shape: str) -> None:
    count = 5000
    places = [SHAPES[shape](number) for number in range(count)]
    engine = engine_with(dict(enumerate(places)))
    most = 0
    for wanted in [*range(1, 40), *range(40, count, 97), count - 1]:
        for start in (places[wanted], places[wanted - 1] + 1):
            engine.scans = 0
            assert MinOffsets(engine).get("T", 0, count, places[-1], start) == wanted
            most = max(most, engine.scans)
    assert most <= (4 if shape == "even" else 1 + 2 * count.bit_length())


@pytest.mark.parametrize("shape", SHAPES)
def test_holes_among_dead_units_do_not_hide_live_ones(shape: str) -> None:
    count, random = 2000, Random(7)
    places = [SHAPES[shape](number) for number in range(count)]
    for wanted in (1, 2, 15, 16, 17, 18, 400, 1000, 1983, 1999):
        kept = {
            number: place
            for number, place in enumerate(places)
            if number >= wanted or random.random() < 0.3
        }
        found = MinOffsets(engine_with(kept)).get("T", 0, count, places[-1], places[wanted])
        assert found == wanted


def test_damage_behind_the_first_live_unit_is_not_looked_at() -> None:
    engine = engine_with({number: 100 * number for number in range(100)})
    engine.write(KvBatch(puts={UNITS: [(unit_key("T", 0, 52), b"rubbish")]}))
    assert MinOffsets(engine).get("T", 0, 100, 9900, 5000) == 50


def test_a_cached_min_is_not_used_once_its_unit_expired() -> None:
    cache = MinOffsets(engine_with({0: 0, 1: 100, 2: 200}))
    assert cache.get("T", 0, 3, 200, 0) == 0
    assert cache.get("T", 0, 3, 200, 150) == 2
    assert cache.get("T", 0, 3, 200, 201) == 3


def test_a_deleted_topics_min_is_forgotten() -> None:
    engine = engine_with({5: 500})
    cache = MinOffsets(engine)
    assert cache.get("T", 0, 6, 500, 0) == 5
    engine.write(
        KvBatch(
            deletes=[(UNITS, unit_key("T", 0, 5))],
            puts={UNITS: [(unit_key("T", 0, 0), pack_unit(CqUnit(900, 10, 0, 0)))]},
        )
    )
    cache.forget("T", [0])
    assert cache.get("T", 0, 1, 900, 0) == 0


def test_damage_is_an_error_not_an_expired_unit() -> None:
    engine = MemoryEngine(FAMILIES)
    engine.write(KvBatch(puts={UNITS: [(unit_key("T", 0, 0), b"rubbish")]}))
    with pytest.raises(CorruptValueError):
        MinOffsets(engine).get("T", 0, 1, 10, 0)
