"""The check of open transactions: each planted fault is found, and told in words."""

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

_ROW = struct.Struct(">qqqqqih")
_NOW = FakeClock().now_ms()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Of five one was committed, one rolled back, one asked about; all were moved."""
    root, clock = tmp_path / "store", FakeClock()
    with open_small(root, clock, reserved_hours=1) as store:
        ids = [store.halves.begin(Message("T", b"x"), "g") for _ in range(5)]
        store.halves.end(ids[0], commit=True)
        store.halves.end(ids[1], commit=False)
        store.rolling.keep_below(store.log.appended_offset, is_pressed=False)
        clock.advance(7)
        store.halves.checked([2])
        store.wait_visible()
    assert faults(root) == []
    return root


def key(half: int) -> bytes:
    return b"m" + struct.pack(">q", half)


def row(place: int, *, check_ms: int = _NOW + 6000) -> bytes:
    return _ROW.pack(place, 1, 0, _NOW, check_ms, 0, 1) + b"gT"


@pytest.mark.parametrize(
    ("planted", "value", "said"),
    [
        (key(3), None, "it is not open"),
        (key(0), row(20), "a transaction that has not ended; one that has"),
        (key(9), row(20), "a place below 8, the end of the queue; 20"),
        (key(3), row(5), "a place of its own, not that of half 2"),
        (key(3), b"x", "a row that can be"),
        (key(3), row(1), "half 3 at place 1"),
        (b"u", struct.pack(">qq", 7, 0), "3 open transactions, 0 given up, as there are rows; 7"),
        (b"ug", None, "3 open transactions, 0 given up, as there are rows; 0, 0"),
        (b"v\0\1g" + struct.pack(">qq", 5, 3), b"", "a check of a half that does not wait"),
        (b"v\0\1g" + struct.pack(">qq", _NOW + 6000, 3), None, "a check of half 3; no row"),
    ],
)
def test_a_row_that_is_wrong_is_told(
    root: Path, planted: bytes, value: bytes | None, said: str
) -> None:
    found = plant(root, planted, value)
    assert any(said in each for each in found), found
