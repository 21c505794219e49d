"""Places of a batch: the same from columns and from requests one by one."""

from __future__ import annotations

import numpy as np

from server.wire.columns import Columns, columns_of
from store.consume_queue import PlainRequests
from store.light_columns import LightNames


def test_columns_are_those_of_the_requests_one_by_one() -> None:
    topics, ids, offsets = ["A", "B", "A"], [0, 2, 0], [4, 9, 5]
    requests = PlainRequests(topics, ids, offsets, np.array([7, 60, 99]), np.array([53] * 3), 1, ())
    assert columns_of(requests) == columns_of(list(requests))
    assert columns_of(requests) == Columns(ids, offsets, [7, 60, 99], [])
    light, _ = LightNames("%LMQ%a,%LMQ%b,%LMQ%a", [2, 0, 1]).take(np.array([3, 8]))
    requests.light = light
    assert columns_of(requests) == columns_of(list(requests))
    assert columns_of(requests) == Columns(ids, offsets, [7, 60, 99], [3, 8, 4])
