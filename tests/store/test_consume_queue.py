"""Requests by columns are those that a list of them is."""

from __future__ import annotations

import numpy as np
import pytest

from store.consume_queue import DispatchRequest, PlainRequests, queues_of, row_counts
from store.light_columns import LightNames


@pytest.fixture(params=[False, True])
def requests(request: pytest.FixtureRequest) -> PlainRequests:
    topics = ["A", "B", "A", "C", "A"]
    places, sizes = np.arange(5) * 60, np.arange(60, 65)
    light = None
    if request.param:
        names = LightNames("%LMQ%a,%LMQ%bb,%LMQ%bb,%LMQ%c,%LMQ%a", [2, 0, 0, 2, 1])
        light, _ = names.take(np.array([5, 0, 9]))
    columns = topics, [0, 1, 2, 0, 0], [7, 0, 3, 9, 8], places, sizes
    return PlainRequests(*columns, 17, ("mark",), light)


@pytest.mark.parametrize("step", [None, 1, 2, -1])
def test_slices_are_those_of_a_list(requests: PlainRequests, step: int | None) -> None:
    whole = list(requests)
    assert [requests[at] for at in range(-len(requests), len(requests))] == [*whole, *whole]
    with pytest.raises(IndexError):
        requests[len(requests)]
    for start in (None, *range(-6, 7)):
        for stop in (None, *range(-6, 7)):
            part = slice(start, stop, step)
            assert list(requests[part]) == whole[part], part


def test_a_piece_of_a_large_batch_costs_what_is_in_it(requests: PlainRequests) -> None:
    piece = requests[1:3]
    assert isinstance(piece, PlainRequests)
    assert np.shares_memory(piece.physical_offsets, requests.physical_offsets)


def test_the_queues_of_columns_are_those_of_a_list(requests: PlainRequests) -> None:
    own = {("A", 0), ("B", 1), ("A", 2), ("C", 0)}
    light = {("%LMQ%a", 0), ("%LMQ%bb", 0), ("%LMQ%c", 0)} if requests.light else set()
    assert queues_of(requests) == queues_of(list(requests)) == own | light
    for piece in (requests[4:], requests[1:3], requests[5:], requests[:0]):
        assert queues_of(piece) == queues_of(list(piece))


def test_the_rows_of_columns_are_those_of_a_list(requests: PlainRequests) -> None:
    assert row_counts(requests) == ([4, 1, 1, 3, 2] if requests.light else [2, 1, 1, 1, 1])
    for piece in (requests, requests[4:], requests[1:3], requests[5:], requests[:0]):
        assert row_counts(piece) == row_counts(list(piece))


def test_light_queues_are_among_the_queues() -> None:
    light = (("%LMQ%a", 3), ("%LMQ%b", 0))
    request = DispatchRequest("A", 1, 0, 0, 60, 0, 17, (), light, in_queue=True)
    assert queues_of([request]) == {("A", 1), ("%LMQ%a", 0), ("%LMQ%b", 0)}
