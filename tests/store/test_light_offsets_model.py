"""Light queues of a real store against plain lists, while next offsets are forgotten.

Dispatch stalls, appends are small and large, fail and are interrupted, and queues are deleted.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from store.derive.reput import ReputService
from store.errors import InvalidArgumentError, StoreBusyError
from store.format.record import unpack_record
from store.log.known_offsets import KnownOffsets
from store.log.segment import Segment
from store.message import Message
from tests.support.rebuild import differences
from tests.support.seeds import seeds
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAMES = [f"%LMQ%{number}" for number in range(30)]
TOO_LONG = Message("T", b"", 0, light_queues=tuple(NAMES), properties={"p": "x" * 32_600})


class Faults:
    """What goes wrong around the append: by chance while `likely` is above 0."""

    def __init__(self, chance: random.Random, patch: pytest.MonkeyPatch) -> None:
        self.likely = 0.0
        self.is_stalled = False
        self._chance = chance
        for owner, name in ((KnownOffsets, "put"), (Segment, "append")):
            patch.setattr(owner, name, self._interrupted(getattr(owner, name)))
        dispatch = ReputService._dispatch_slice

        def stalled(reput: ReputService, *run: Any, **how: Any) -> None:  # noqa: ANN401
            if self.is_stalled:
                raise StoreBusyError("stalled")
            dispatch(reput, *run, **how)

        patch.setattr(ReputService, "_dispatch_slice", stalled)

    def _interrupted(self, call: Callable[..., object]) -> Callable[..., object]:
        def called(*args: object) -> object:
            self._strike()
            result = call(*args)
            self._strike()
            return result

        return called

    def _strike(self) -> None:
        if self._chance.random() < self.likely:
            raise KeyboardInterrupt


@pytest.mark.parametrize("seed", seeds(2, 12))
def test_each_message_stands_once_and_in_order_in_its_light_queues(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    for limit, values in {
        "_SMALL": (0, 5, 100),
        "_MOST_SMALL": (1, 9),
        "_FEW_GONE": (0, 9),
    }.items():
        monkeypatch.setattr(f"store.log.queue_offsets.{limit}", chance.choice(values))
    monkeypatch.setattr("store.log.known_offsets._FIRST_BUCKETS", 1)
    # By columns, or one by one.
    monkeypatch.setattr("store.format.preparing.FEW", chance.choice((1, 5, 100)))
    monkeypatch.setattr("kvcq.tables.light_rows._FEW", chance.choice((1, 150)))
    faults = Faults(chance, monkeypatch)
    likely = chance.choice((0.0, 0.05))
    sent: dict[str, list[bytes]] = {name: [] for name in NAMES}
    with open_small(
        tmp_path / "s", segment_bytes=16_384, light_offset_bytes=160 * chance.choice((1, 4))
    ) as store:
        store.create_topics([("T", 1)])
        for step in range(120):
            batch = [
                Message(
                    "T",
                    b"%d-%d " % (step, index) + b"x" * chance.choice((0, 700)),
                    light_queues=tuple(chance.sample(NAMES, chance.choice((1, 2, 12)))),
                )
                for index in range(chance.choice((1, 1, 5)))
            ]
            start = store.log.appended_offset
            faults.likely = likely
            with suppress(KeyboardInterrupt, InvalidArgumentError):
                store.append([*batch, TOO_LONG] if chance.random() < 0.05 else batch)
            faults.likely = 0.0
            with store.log.lock:
                store.log.settle()
            if store.log.appended_offset > start:
                for message in batch:
                    for name in message.light_queues:
                        sent[name].append(message.body)
            if chance.random() < 0.1:
                faults.is_stalled = not faults.is_stalled
            if chance.random() < 0.05 and any(sent.values()):
                faults.is_stalled = False
                store._appends._reput.wake()
                store.wait_visible()
                name = chance.choice([name for name in NAMES if sent[name]])
                store.delete_topic(name)
                sent[name] = []
        faults.is_stalled = False
        store._appends._reput.wake()
        store.wait_visible()
        for name, bodies in sent.items():
            if bodies:
                pulled = store.pull(name, 0, 0, max_messages=10_000, max_bytes=1 << 30)
                assert [unpack_record(each).body for each in pulled.records] == bodies
                assert store.bounds([(name, 0)]) == [(0, len(bodies))]
        assert differences(store) == []
