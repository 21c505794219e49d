"""Next offsets: a bounded cache that never forgets what only it knows."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import AppendWouldWaitError, UnknownTopicError
from store.log.known_offsets import KnownOffsets
from store.log.queue_offsets import QueueOffsets, TakenLight, _Aside
from tests.support.seeds import seeds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.log.known_offsets import Looked
    from store.log.queue_offsets import Hot, QueueKey


class Appender:
    """An appender and a consume queue that lags behind it: each append is one log byte."""

    def __init__(self, limit: int, table_bytes: int = 0) -> None:
        self.log: list[QueueKey] = []
        self.dispatched = 0
        self._counts: Counter[QueueKey] = Counter()  # of the log's first `_counted`
        self._counted = 0
        self.loads = 0
        self.interrupted = False
        self.offsets = QueueOffsets(
            limit,
            table_bytes,
            self.load,
            lambda: self.dispatched,
        )

    def load(
        self, queues: Sequence[tuple[str, int]], light: Sequence[str], _log_end: int
    ) -> list[int]:
        keys: list[QueueKey] = [*queues, *light]
        self.loads += len(keys)
        if ("none", 0) in keys:
            raise UnknownTopicError("none")
        assert self._counted <= self.dispatched
        self._counts.update(self.log[self._counted : self.dispatched])
        self._counted = self.dispatched
        return [self._counts[key] for key in keys]

    def delete(self, deleted: QueueKey) -> None:
        self.offsets.forget([deleted])
        self.dispatched = len(self.log)
        self.log = [("deleted", 0) if each == deleted else each for each in self.log]
        self._counts.clear()
        self._counted = 0

    def append(self, keys: Sequence[QueueKey]) -> list[int]:
        queues = {each for each in keys if not isinstance(each, str)}
        light = list(dict.fromkeys(each for each in keys if isinstance(each, str)))
        hot = self.offsets.turn(len(self.log))
        hot.light = TakenLight()
        self.until_done(lambda: self.offsets.warm(queues - hot.queues.keys(), light, len(self.log)))
        if len(light) == len(keys) and len(light) % 2:  # as columns do it
            taken = list(hot.light.offsets)
            hot.light = TakenLight(light, np.array(taken) + 1)
            self.log += light
        else:
            taken = self.take(hot, keys)
        for _ in range(1 + self.interrupted):
            self.until_done(self.offsets.keep_light)
        return taken

    def take(self, hot: Hot, keys: Sequence[QueueKey]) -> list[int]:
        taken = []
        for each in keys:
            if isinstance(each, str):
                taken.append(hot.light.by_name[each])
                hot.light.by_name[each] += 1
            else:
                taken.append(hot.queues[each])
                hot.queues[each] += 1
            self.log.append(each)
        return taken

    def until_done(self, call: Callable[[], None]) -> None:
        """Ctrl-C ends it, and it is made again."""
        while True:
            try:
                return call()
            except KeyboardInterrupt:
                assert self.interrupted


def key(number: int) -> QueueKey:
    """A queue of a topic, or a light one."""
    return ("T", number) if number % 2 else f"%LMQ%{number}"


def test_what_was_used_is_not_loaded_again() -> None:
    appender = Appender(16)
    assert appender.append([key(1), key(2), key(1)]) == [0, 0, 1]
    assert appender.append([key(1)]) == [2]
    assert appender.loads == 2


def test_keys_of_both_generations_survive_a_turn() -> None:
    # One batch names queues of the old generation, of the young one, and a new one that makes
    # the generations turn.
    appender = Appender(4)
    appender.append([key(1), key(2)])
    appender.append([key(3)])  # turns: 1 and 2 are old
    appender.dispatched = len(appender.log)
    assert appender.append([key(1), key(3), key(4)]) == [1, 1, 0]
    assert appender.append([key(2), key(1)]) == [1, 2]


def test_undispatched_queues_are_not_forgotten() -> None:
    appender = Appender(2)
    for round_ in range(2):
        for number in range(40):
            assert appender.append([key(number)]) == [round_]
    assert appender.loads == 40


def test_memory_is_bounded_once_dispatched() -> None:
    appender = Appender(32)
    for number in range(500):
        appender.append([key(2 * number + 1)])
        appender.dispatched = len(appender.log)
    assert len(appender.offsets) <= 34
    for number in range(10_000):
        appender.append([key(2 * number)])
        appender.dispatched = len(appender.log)
    assert len(appender.offsets) <= 34 + 8 + 1024


def test_a_generation_is_let_go_bit_by_bit_and_is_gone_before_the_next_one() -> None:
    appender = Appender(200)
    left = []
    for number in range(1000):
        appender.append([key(2 * number + 1)])
        appender.dispatched = len(appender.log)
        left.append(len(appender.offsets._gone.queues))
    steps = [(before, after) for before, after in pairwise(left) if before != after]
    assert steps[:7] == [(0, 84), (84, 68), (68, 52), (52, 36), (36, 20), (20, 4), (4, 0)]
    assert steps == steps[:7] * 8


def test_light_queues_that_are_dispatched_are_let_go_bit_by_bit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("store.log.queue_offsets._SMALL", 0)
    appender = Appender(2)
    light = [key(2 * number) for number in range(6000)]
    for number in light:
        appender.append([number])
    appender.dispatched = len(appender.log)
    aside = appender.offsets._light
    left = []
    for _ in range(2000):
        appender.append(light[:1])
        appender.dispatched = len(appender.log)
        left.append(len(aside._gone) + len(aside._before) + len(aside._recent))
    assert max(before - after for before, after in pairwise(left)) <= 4096 + 2
    assert left[-1] <= 3


def test_where_dispatch_lags_memory_and_the_next_look_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("store.log.queue_offsets._MOST_APART", 300)
    appender = Appender(2, 1 << 20)
    light: list[QueueKey] = [f"%LMQ%{number}" for number in range(99)]
    for round_ in range(20):
        assert appender.append(light) == [round_] * 99
        aside = appender.offsets._light
        for each in (aside._recent, aside._before):
            assert each._apart <= 300
            assert len(each) <= 99 + 300


def test_a_failed_load_changes_nothing() -> None:
    appender = Appender(4)
    appender.append([key(1), key(2)])

    def known() -> list[dict[str, int] | dict[tuple[str, int], int]]:
        generations = (appender.offsets.young, appender.offsets._old)
        return [dict(each) for hot in generations for each in (hot.queues, hot.light.by_name)]

    before = known()
    with pytest.raises(AppendWouldWaitError):
        appender.offsets.warm([("T", 9)], ["%LMQ%4"], 9, most=1)
    with pytest.raises(UnknownTopicError):
        appender.offsets.warm([("T", 9), ("none", 0)], ["%LMQ%4"], 9)
    assert known() == before


def test_forgotten_queues_are_loaded_again() -> None:
    appender = Appender(4)
    appender.append([key(1), key(2)])
    appender.append([key(3)])
    appender.dispatched = 3
    appender.offsets.forget([key(1), key(3), key(77)])
    assert len(appender.offsets) == 1
    assert appender.append([key(1), key(3)]) == [1, 1]


def test_light_queues_that_are_dispatched_are_known_all_the_same() -> None:
    appender = Appender(2, 1 << 20)
    light = [f"%LMQ%{number}" for number in range(4000)]
    for round_ in range(4):
        for first in range(0, len(light), 100):
            assert appender.append(light[first : first + 100]) == [round_] * 100
            appender.dispatched = len(appender.log)
    assert appender.loads < len(light) * 1.1


def test_a_forgotten_queue_is_known_nowhere() -> None:
    appender = Appender(400, 1 << 20)
    light = [f"%LMQ%{number}" for number in range(1000)]
    for _ in range(2):
        for first in range(0, len(light), 100):
            appender.append(light[first : first + 100])
            appender.dispatched = len(appender.log)
    appender.offsets.forget(light)
    assert len(appender.offsets) == 0
    before = appender.loads
    assert appender.append(light) == [2] * 1000
    assert appender.loads == before + 1000


@pytest.mark.parametrize("seed", seeds(4, 60))
def test_offsets_are_dense_with_a_table(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Long runs: what the table says of a queue is wrong only many turns after the error.
    chance = random.Random(seed)
    monkeypatch.setattr("store.log.queue_offsets._FEW_GONE", chance.choice((0, 3, 100)))
    monkeypatch.setattr("store.log.queue_offsets._SMALL", chance.choice((0, 3, 100)))
    monkeypatch.setattr("store.log.queue_offsets._MOST_SMALL", chance.choice((1, 8)))
    monkeypatch.setattr("store.log.queue_offsets._MOST_APART", chance.choice((1, 5, 1000)))
    appender = Appender(2, 160 * chance.choice((1, 4)))
    if chance.random() < 0.5:
        appender.interrupted = True
        put = KnownOffsets.put

        def interrupted_put(known: KnownOffsets, looked: Looked, offsets: Sequence[int]) -> None:
            if chance.random() < 0.2:
                raise KeyboardInterrupt
            put(known, looked, offsets)
            if chance.random() < 0.2:
                raise KeyboardInterrupt

        class Interrupted(_Aside):
            def __init__(self) -> None:
                if chance.random() < 0.2:
                    raise KeyboardInterrupt
                super().__init__()

        monkeypatch.setattr(KnownOffsets, "put", interrupted_put)
        monkeypatch.setattr("store.log.queue_offsets._Aside", Interrupted)
    numbers = range(chance.choice((10, 40)))
    lags = chance.choice((0.1, 0.5, 0.9))
    model: dict[QueueKey, int] = {}
    for _ in range(400):
        keys = [key(2 * each) for each in chance.choices(numbers, k=chance.randint(1, 6))]
        expected = []
        for each in keys:
            expected.append(model.get(each, 0))
            model[each] = expected[-1] + 1
        assert appender.append(keys) == expected
        if chance.random() > lags:
            appender.dispatched = len(appender.log)
        if chance.random() < 0.1:
            appender.delete(keys[0])
            model[keys[0]] = 0


@given(
    limit=st.integers(1, 8),
    steps=st.lists(
        st.one_of(
            st.lists(st.integers(0, 7).map(key), min_size=1, max_size=6),
            st.integers(0, 10),  # dispatch so many more
        ),
        max_size=40,
    ),
)
def test_offsets_are_dense_whatever_is_forgotten(
    limit: int, steps: list[list[QueueKey] | int]
) -> None:
    appender = Appender(limit)
    model: dict[QueueKey, int] = {}
    for step in steps:
        if isinstance(step, int):
            appender.dispatched = min(len(appender.log), appender.dispatched + step)
            continue
        expected = []
        for each in step:
            expected.append(model.get(each, 0))
            model[each] = expected[-1] + 1
        assert appender.append(step) == expected
