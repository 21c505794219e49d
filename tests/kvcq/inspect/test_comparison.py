"""The comparison of units finds exactly what a side lacks, has wrong, or has too much."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq.inspect.comparison import Comparison, Queue
from kvcq.inspect.lookup import faults_of
from kvcq.tables.unit_columns import pages_of_queues, units_of_requests
from migration.formats.unit import pack_units, unpack_units
from store.consume_queue import DispatchRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kvcq.tables import Unit, UnitColumns

LOG = {
    100 * at: DispatchRequest(
        f"T{at % 2}", at % 3, at // 6, 100 * at, 50, 7, 0, (), (("%LMQ%a", at),), in_queue=True
    )
    for at in range(30)
}
UNITS = replace(units_of_requests(list(LOG.values())), store_time_ms=None)
WANTED = {(queue, offset): unit for queue, offset, unit in UNITS.rows()}
places = st.sampled_from(sorted(WANTED))
units = st.tuples(st.sampled_from([*LOG, 5]), st.sampled_from([50, 51]), st.sampled_from([7, 8]))


class Stored:
    def __init__(self, units: dict[tuple[Queue, int], Unit]) -> None:
        self.stored = units
        self.missing: set[tuple[Queue, int]] = set()
        self.wrong: set[tuple[Queue, int]] = set()

    def units(self) -> Iterator[UnitColumns]:
        return pages_of_queues(
            (queue, np.array([offset]), unpack_units(pack_units(unit)))
            for (queue, offset), unit in self.stored.items()
        )

    def places_in(self, queue: Queue, offsets: Sequence[int]) -> set[int]:
        return {offset for offset in offsets if (queue, offset) in self.stored}

    def is_missing(self, queue: Queue, offset: int, unit: Unit) -> None:
        assert WANTED[queue, offset] == unit
        self.missing.add((queue, offset))

    def judge(self, queue: Queue, offset: int, unit: Unit) -> None:
        if faults_of(LOG.get(unit[0]), queue, offset, unit, None):
            self.wrong.add((queue, offset))


def compare(side: Stored) -> bool:
    """Whether the sums differed."""
    comparison = Comparison(side, with_times=False)
    runs = [list(LOG.values())[at : at + 7] for at in range(0, len(LOG), 7)]
    for run in runs:
        comparison.expect(units_of_requests(run))
    comparison.read()
    differed = comparison.differ
    for run in runs:
        comparison.find_missing(units_of_requests(run))
    if comparison.differ:
        comparison.find_wrong()
    return differed


@pytest.mark.parametrize("buckets", [1, 1 << 16])
@given(
    lacking=st.sets(places, max_size=4),
    changed=st.dictionaries(places, units, max_size=4),
    more=st.dictionaries(st.tuples(st.just(("T9", 0)), st.integers(0, 3)), units, max_size=2),
)
def test_each_difference_is_found_and_nothing_else(
    buckets: int,
    lacking: set[tuple[Queue, int]],
    changed: dict[tuple[Queue, int], Unit],
    more: dict[tuple[Queue, int], Unit],
) -> None:
    stored = {
        place: unit for place, unit in (WANTED | changed | more).items() if place not in lacking
    }
    side = Stored(stored)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("kvcq.inspect.sums._BUCKETS", buckets)
        differed = compare(side)
    assert side.missing == lacking
    assert side.wrong == {place for place, unit in stored.items() if WANTED.get(place) != unit}
    assert differed == (stored != WANTED)
