"""What only the engine in memory has: the filter by a fake clock. The rest is in the contract
suite."""

from __future__ import annotations

import struct

import pytest

from kvcq.engine.protocol import KvBatch
from store.errors import InvalidArgumentError
from tests.support.fake_clock import FakeClock
from tests.support.memory_engine import MemoryEngine


def test_the_line_creeps_with_the_clock() -> None:
    clock = FakeClock(1_000_000_000)
    engine = MemoryEngine(filtered=("default",), clock=clock)
    rows = [(b"%d" % age, bytes(28) + struct.pack("<i", 1_000_000 - age)) for age in range(5)]
    engine.write(KvBatch(puts={"default": rows}))
    engine.arm(2)
    engine.compact("default")
    assert [key for key, _ in engine.scan("default", b"0", b"9")] == [b"0", b"1", b"2"]
    clock.advance(1)
    engine.compact("default", b"0", b"2")  # the range of 0 and 1 only
    assert [key for key, _ in engine.scan("default", b"0", b"9")] == [b"0", b"1", b"2"]
    engine.compact("default")
    assert [key for key, _ in engine.scan("default", b"0", b"9")] == [b"0", b"1"]


def test_no_filter_without_a_family_for_it() -> None:
    with pytest.raises(InvalidArgumentError):
        MemoryEngine().arm(5)
