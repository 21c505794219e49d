"""Values: 28 bytes as RocketMQ has them, then the expiry stamp."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq.errors import CorruptValueError
from kvcq.tables import values
from store.consume_queue import CqUnit
from tests.support.rows import pack_unit

I64 = st.integers(-(2**63), 2**63 - 1)
UNITS = st.builds(
    CqUnit,
    st.integers(0, 2**63 - 1),
    st.integers(1, 2**31 - 1),
    I64,
    st.integers(0, 2**63 - 1),
)


def test_rocketmqs_vector_with_a_little_endian_stamp_behind() -> None:
    unit = CqUnit(4096, 156, 2598919, 1700000000456)
    packed = pack_unit(unit)
    assert packed[:28].hex() == "00000000000010000000009c000000000027a8070000018bcfe569c8"
    assert struct.unpack("<i", packed[28:]) == (1700000000,)
    assert values.pack_max(4096, 7).hex() == "00000000000010000000000000000007"


@given(UNITS)
def test_units_read_back_with_and_without_the_stamp(unit: CqUnit) -> None:
    packed = pack_unit(unit)
    assert values.unpack_unit(packed) == unit
    assert values.unpack_unit(packed[:28]) == unit


@given(st.lists(UNITS, max_size=20), st.lists(st.booleans(), min_size=20, max_size=20))
def test_many_units_read_as_each_alone(units: list[CqUnit], short: list[bool]) -> None:
    packed = [pack_unit(unit)[: 28 if cut else 32] for unit, cut in zip(units, short, strict=False)]
    assert values.unpack_units(packed) == units


@pytest.mark.parametrize("length", [0, 20, 27, 29, 31, 33, 64])
def test_a_unit_of_another_length_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptValueError):
        values.unpack_unit(bytes(length))


@pytest.mark.parametrize(("offset", "size"), [(-1, 10), (0, 0), (5, -3)])
def test_what_no_append_can_have_written_is_corrupt(offset: int, size: int) -> None:
    packed = pack_unit(CqUnit(offset, size, 0, 0))
    with pytest.raises(CorruptValueError, match="impossible"):
        values.unpack_unit(packed)
    with pytest.raises(CorruptValueError, match="impossible"):
        values.unpack_units([packed])


@given(st.integers(-(10**6), 2**62))
def test_the_stamp_is_whole_seconds_within_a_signed_word(time_ms: int) -> None:
    (stamp,) = struct.unpack("<i", values.expiry_stamp(time_ms))
    assert stamp == min(max(time_ms // 1000, 0), 2**31 - 1)


def test_bounds_rows_of_another_length_are_corrupt() -> None:
    with pytest.raises(CorruptValueError):
        values.unpack_max(bytes(8))
    assert values.next_offsets_of([values.pack_max(4096, 7), None]) == [8, 0]
    with pytest.raises(CorruptValueError, match="max row of 8 bytes"):
        values.next_offsets_of([values.pack_max(4096, 7), bytes(8)])
    with pytest.raises(CorruptValueError):
        values.unpack_i64(bytes(16))
