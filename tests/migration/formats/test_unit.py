"""The unit of a file consume queue: RocketMQ's own bytes, and what counts as no unit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migration.formats.unit import (
    BLANK_SIZE,
    BLANK_UNIT,
    END_MARK,
    UNIT_SIZE,
    file_name,
    pack_units,
    parse_file_name,
    parse_queue_id,
    unpack_unit,
    unpack_units,
    valid_units,
)

# Tag codes of "TagA" and "order-created".
VECTORS = [
    ((4096, 156, 2598919), "0000000000001000 0000009c 000000000027a807"),
    ((2147483648, 200, -392709271), "0000000080000000 000000c8 ffffffffe897bb69"),
    ((0, 0x7FFFFFFF, 0), "0000000000000000 7fffffff 0000000000000000"),
]

UNITS = st.lists(
    st.tuples(
        st.integers(-1, (1 << 63) - 1),
        st.integers(-1, BLANK_SIZE),
        st.integers(-(1 << 63), (1 << 63) - 1),
    )
)


@pytest.mark.parametrize(("fields", "golden"), VECTORS)
def test_unit_has_the_bytes_of_the_original(fields: tuple[int, int, int], golden: str) -> None:
    assert pack_units(fields) == bytes.fromhex(golden)
    assert unpack_units(bytes.fromhex(golden)).tolist() == [fields]


def test_blank_is_the_original_blank() -> None:
    assert bytes.fromhex(VECTORS[2][1]) == BLANK_UNIT


@given(UNITS)
def test_units_round_trip(units: list[tuple[int, int, int]]) -> None:
    data = pack_units([number for unit in units for number in unit])
    assert unpack_units(data).tolist() == units
    assert len(data) == UNIT_SIZE * len(units)


@given(UNITS)
def test_one_reader_and_many_agree_on_what_is_valid(units: list[tuple[int, int, int]]) -> None:
    data = pack_units([number for unit in units for number in unit])
    one_by_one = [
        unpack_unit(data[at : at + UNIT_SIZE]) is not None for at in range(0, len(data), UNIT_SIZE)
    ]
    assert valid_units(unpack_units(data)).tolist() == one_by_one


@pytest.mark.parametrize(
    "data", [BLANK_UNIT, bytes(UNIT_SIZE), END_MARK, pack_units((-1, 100, 0)), b"", b"\0" * 19]
)
def test_blanks_zeros_and_pieces_are_no_units(data: bytes) -> None:
    assert unpack_unit(data) is None


def test_trailing_piece_of_a_unit_is_left_out() -> None:
    assert len(unpack_units(BLANK_UNIT + b"\1" * 19)) == 1


def test_file_is_named_by_its_first_byte() -> None:
    # Queue offset 1234567 of 300000 a file: the fifth file, position 691340.
    start = 1234567 * UNIT_SIZE // 6_000_000 * 6_000_000
    assert file_name(start) == "00000000000024000000"
    assert 1234567 * UNIT_SIZE - start == 691340
    assert parse_file_name(file_name(start)) == start


@pytest.mark.parametrize("name", ["", "24000000", "0000000000002400000x", "\u0660" * 20, "1" * 21])
def test_foreign_file_names_are_told(name: str) -> None:
    assert parse_file_name(name) is None


@pytest.mark.parametrize(("name", "queue_id"), [("0", 0), ("17", 17), ("01", None), ("-1", None)])
def test_queue_directories_are_numbers(name: str, queue_id: int | None) -> None:
    assert parse_queue_id(name) == queue_id
