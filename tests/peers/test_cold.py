"""Memory that is there is held until memory comes slowly."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

from tests.peers.cold import CHUNK_BYTES, ColdMemory, touched_chunk

if TYPE_CHECKING:
    from collections.abc import Callable


def _comes_at(rates: list[float]) -> Callable[[], tuple[mmap.mmap, float]]:
    """Chunks at these rates, then at the last one of them."""
    left = iter(rates)
    last = rates[-1]
    return lambda: (mmap.mmap(-1, mmap.PAGESIZE), next(left, last))


_WARM_UP = [300.0, 1800.0, 1800.0, 1800.0]


def test_holds_memory_until_it_comes_slowly_four_times_in_a_row() -> None:
    rates = [*_WARM_UP, 1700, 400, 400, 400, 1700, 300, 300, 300, 310]
    with ColdMemory(_comes_at(rates), 1 << 40) as cold:
        assert cold.fill()
        assert cold.held_bytes == 9 * CHUNK_BYTES
        assert (cold.warm_mb_s, cold.cold_mb_s) == (1800.0, 310)
    assert cold.held_bytes == 0


def test_says_where_memory_is_never_slow_and_holds_none() -> None:
    with ColdMemory(_comes_at([*_WARM_UP, 1700]), 10 * CHUNK_BYTES) as cold:
        assert not cold.fill()
        assert cold.held_bytes == 0
        assert not cold.fill()


def test_gives_back_what_is_to_be_touched() -> None:
    with ColdMemory(_comes_at([*_WARM_UP, 1700, 300]), 1 << 40) as cold:
        cold.fill()
        cold.give(CHUNK_BYTES + 1)
        assert cold.held_bytes == 3 * CHUNK_BYTES
        cold.give(1 << 40)
        assert cold.held_bytes == 0


def test_holds_what_was_freed_as_well_while_there_is_room_then_lets_the_host_take_some() -> None:
    slept: list[float] = []
    rates = [*_WARM_UP, 1700.0, *[300.0] * 4, 1700.0, *[300.0] * 4, *[1700.0] * 2, 300.0]
    with ColdMemory(_comes_at(rates), 12 * CHUNK_BYTES, slept.append) as cold:
        assert cold.fill()
        assert cold.held_bytes == 5 * CHUNK_BYTES
        assert cold.fill()
        assert cold.held_bytes == 10 * CHUNK_BYTES
        assert not slept
        assert cold.fill()  # two chunks more, none of them slow
        assert len(slept) == 1
        assert cold.held_bytes == 4 * CHUNK_BYTES


def test_leaves_it_at_that_where_fresh_memory_comes_fast_again_and_again() -> None:
    seconds = iter(range(1000))
    with ColdMemory(
        _comes_at([*_WARM_UP, 1700.0]),
        1 << 40,
        lambda _: None,
        lambda: float(next(seconds)),
    ) as cold:
        assert not cold.fill()
        assert 0 < cold.held_bytes < 100 * CHUNK_BYTES
        assert not cold.fill()
        assert not cold.fill()
        assert cold.held_bytes == 0
        assert not cold.fill()
        assert cold.held_bytes == 0


def test_touches_memory_for_real() -> None:
    memory, rate = touched_chunk(1 << 20)
    assert memory[0] == 0
    assert rate > 0
    memory.close()
