"""The table of queue ends is the same however it came together, and shows every change."""

from __future__ import annotations

import pickle

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

import numpy as np
import pyarrow as pa

from migration.spark.verify import queue_ends
from migration.spark.verify.queue_ends import EndsByHash, differing


def ends_of(rows: list[tuple[int, int, int]], parts: int = 1) -> EndsByHash:
    """Of rows (queue, place, offset), in as many batches."""
    whole = EndsByHash()
    for piece in np.array_split(np.array(rows, dtype=np.int64).reshape(-1, 3), parts):
        part = EndsByHash()
        columns = {"physical_offset": piece[:, 1], "queue_offset": piece[:, 2]}
        part.add(piece[:, 0].astype(np.uint64), pa.RecordBatch.from_pydict(columns))
        whole.merge(pickle.loads(pickle.dumps(part)))
    return whole


ROWS = [(queue, 1000 * at + queue, at) for at in range(50) for queue in range(7)]


@pytest.mark.parametrize("parts", [1, 3, 350])
def test_the_highest_unit_of_each_queue_counts(monkeypatch: pytest.MonkeyPatch, parts: int) -> None:
    monkeypatch.setattr(queue_ends, "_REDUCE_AT", 40)
    shuffled = [ROWS[at] for at in np.random.default_rng(1).permutation(len(ROWS))]
    table = ends_of(shuffled, parts).table()
    assert table.queues.tolist() == list(range(7))
    assert table.places.tolist() == [49_000 + queue for queue in range(7)]
    assert table.offsets.tolist() == [49] * 7


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ([(3, 49_003, 50)], [3]),
        ([(3, 49_004, 49)], [3]),
        ([(9, 0, 0)], [9]),
        ([], []),
    ],
)
def test_a_change_shows_in_its_queue_alone(
    change: list[tuple[int, int, int]], wanted: list[int]
) -> None:
    queues = {queue for queue, *_ in change}
    others = [row for row in ROWS if row[0] not in queues]
    other = ends_of([*others, *change])
    assert differing(ends_of(ROWS), other).tolist() == wanted
    assert differing(other, ends_of(ROWS)).tolist() == wanted


def test_a_queue_that_one_side_has_not_shows() -> None:
    assert differing(ends_of(ROWS), ends_of(ROWS[:0])).tolist() == list(range(7))
    assert not len(differing(EndsByHash(), EndsByHash()))
