"""The check of what waits: each planted fault is found, and told in words."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from store.message import Message
from tests.kvcq.inspect.test_shared_groups import faults, plant
from tests.support.fake_clock import FakeClock
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

_ROW = struct.Struct(">qqq")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three wait, one was delivered, one recalled, all were moved."""
    root, clock = tmp_path / "store", FakeClock()
    with open_small(root, clock, reserved_hours=1) as store:
        due = [clock.now_ms() + 1000 * each for each in range(1, 6)]
        handles = store.timers.put([Message("T", b"x")] * 5, due).handles
        store.timers.recall("T", handles[:1])
        store.wait_visible()
        store.rolling.keep_below(store.log.appended_offset, is_pressed=False)
        clock.advance(2)
        store.timers.firing.fire()
    assert faults(root) == []
    return root


def key(number: int) -> bytes:
    return b"i" + struct.pack(">qq", FakeClock().now_ms() + 1000 * (number + 1), number)


@pytest.mark.parametrize(
    ("number", "value", "said"),
    [
        (3, None, "2 timers, as there are rows; 3"),
        (9, _ROW.pack(9, 0, 1), "4 timers, as there are rows; 3"),
        (3, b"x", "a row that can be"),
        (3, _ROW.pack(1, 0, 1), "a timer that can be"),
        (3, _ROW.pack(99, 0, 1), "a place below 9, the end of the queue; 99"),
        (3, _ROW.pack(8, 0, 5), "nonce"),
    ],
)
def test_a_row_that_is_wrong_is_told(
    root: Path, number: int, value: bytes | None, said: str
) -> None:
    found = plant(root, key(number), value)
    assert found
    if said != "nonce":
        assert any(said in each for each in found)


def test_a_count_that_is_wrong_is_told(root: Path) -> None:
    assert plant(root, b"j", struct.pack(">q", 4)) == ["state b'j': 3 timers, as there are rows; 4"]
