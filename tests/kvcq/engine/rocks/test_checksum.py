"""kvcq/engine/rocks/checksum.py: the values that RFC 3720 gives, in one piece and in several."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq.engine.rocks import crc32c
from kvcq.engine.rocks.checksum import HAS_INSTRUCTION, portable

KNOWN = {
    b"": 0,
    b"123456789": 0xE3069283,
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(range(31, -1, -1)): 0x113FDB5C,
}


@pytest.mark.parametrize(("data", "wanted"), KNOWN.items())
def test_values_of_the_standard(data: bytes, wanted: int) -> None:
    assert crc32c(data) == wanted
    for cut in range(0, len(data), 5):
        assert crc32c(data[cut:], crc32c(data[:cut])) == wanted


@given(st.binary(), st.binary())
def test_with_the_instruction_and_without_are_the_same(data: bytes, more: bytes) -> None:
    assert HAS_INSTRUCTION  # every machine that tests it has one
    assert crc32c(data) == portable(data)
    assert crc32c(more, crc32c(data)) == portable(data + more)
