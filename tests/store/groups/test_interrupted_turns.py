"""Ctrl-C inside a turn: a delivery has ended with one dead letter, or not at all."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from store.config import FlushMode
from store.groups import Outcome
from store.message import Message
from store.metadata import SharedGroup
from tests.support.fake_clock import FakeClock
from tests.support.interrupts import interrupt
from tests.support.rebuild import differences
from tests.support.stores import bodies, open_small

if TYPE_CHECKING:
    from pathlib import Path

ALL = ("store", "kvcq")


@pytest.mark.parametrize("size", [10, 9000])
def test_an_interrupt_leaves_one_dead_letter_of_each_message(tmp_path: Path, size: int) -> None:
    clock = FakeClock()
    with open_small(tmp_path / "s", clock, flush_mode=FlushMode.ASYNC) as store:
        store.groups.create("g", SharedGroup(max_deliveries=1, invisible_ms=1))
        at, number, is_reached = 1, 0, True
        while is_reached:
            store.put([Message("T", b"%d" % number + b" " * size)])
            store.wait_visible()  # an interrupt leaves dispatch to another thread
            assert len(store.groups.receive("g", "T").deliveries) == 1
            clock.advance(1)
            is_reached = interrupt(lambda: store.groups.receive("g", "T"), at, packages=ALL)
            assert store.groups.receive("g", "T").deliveries == []
            at += 61 if size == 10 else 331
            number += 1
        assert number > 10
        store.wait_visible()
        letters: Counter[bytes] = Counter()
        offset = 0
        while records := store.pull("%DLQ%g", 0, offset).records:
            letters.update(body.strip() for body in bodies(list(records)))
            offset += len(records)
        assert letters == Counter(b"%d" % each for each in range(number))
        assert differences(store) == []
        assert store.groups._turns.waiting == []


def test_an_interrupted_acknowledgement_holds_or_does_not(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_small(tmp_path / "s", clock, flush_mode=FlushMode.SYNC) as store:
        store.groups.create("g", SharedGroup(invisible_ms=1))
        store.create_topics([("T", 1)])
        at, is_reached = 1, True
        while is_reached:
            store.put([Message("T", b"x")])
            (got,) = store.groups.receive("g", "T").deliveries
            handles = [got.handle]
            is_reached = interrupt(
                lambda handles=handles: store.groups.acknowledge("g", handles),  # type: ignore[misc]
                at,
                packages=ALL,
            )
            # Once more, as a client does that had no answer.
            again = store.groups.acknowledge("g", handles).outcomes
            assert is_reached or again == [Outcome.NOT_IN_FLIGHT]
            clock.advance(1)
            assert store.groups.receive("g", "T").deliveries == []
            at += 61
        assert at > 1000
        assert differences(store) == []
