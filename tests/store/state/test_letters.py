"""Rows of dead letters: which places have ended, and where a letter is that was moved."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from store.metadata import KEEP_ALL
from store.state import (
    NOWHERE,
    LetterEnd,
    LetterEnded,
    Tables,
    TopicEnded,
    TopicsMade,
    changes_of,
)
from store.state.rows import PLACES, pack_bits, unpack_bits
from tests.support.state import DictRows

DLQ = "%DLQ%g"
_PLACES = st.integers(0, 3 * PLACES)


def ended(
    place: int, *, letter: int | None = None, to: int = NOWHERE, first: int = 0
) -> LetterEnded:
    how = LetterEnd.MOVED if to >= 0 else LetterEnd.REDRIVEN
    return LetterEnded(DLQ, place if letter is None else letter, place, to, first, how)


def rows_of(*entries: LetterEnded) -> DictRows:
    rows = DictRows()
    for entry in entries:
        rows.take(changes_of([entry], 0, rows))
    return rows


@given(st.sets(_PLACES), _PLACES, _PLACES)
def test_places_are_a_set(places: set[int], first: int, end: int) -> None:
    tables = Tables(rows_of(*map(ended, sorted(places))))
    wanted = [each for each in range(first, end) if each not in places]
    assert list(tables.live_places(DLQ, first, end)) == wanted
    assert tables.count_ended(DLQ, first, end) == max(0, end - first) - len(wanted)


@given(st.integers(0, 1 << PLACES - 1))
def test_bits_survive_packing(bits: int) -> None:
    row = pack_bits(bits)
    assert unpack_bits(row) == bits
    assert not row.endswith(b"\0")


def test_rows_of_places_that_the_queue_has_no_longer_go() -> None:
    rows = rows_of(ended(5), ended(PLACES), ended(2 * PLACES, first=2 * PLACES - 1))
    assert sorted(key[-8:].hex()[-1] for key in rows.rows) == ["1", "2"]


def test_a_letter_that_was_moved_is_found_by_its_name_until_it_ends() -> None:
    rows = rows_of(ended(5, to=100), ended(100, letter=5, to=200), ended(6, to=101))
    tables = Tables(rows)
    assert tables.moved_letters(DLQ, -1, 9) == [(5, 200), (6, 101)]
    assert tables.moved_letters(DLQ, 5, 9) == [(6, 101)]
    rows.take(changes_of([ended(200, letter=5)], 0, rows))
    assert (tables.moved_letter(DLQ, 5), tables.moved_letter(DLQ, 6)) == (None, 101)
    assert list(tables.live_places(DLQ, 98, 103)) == [98, 99, 101, 102]


def test_all_of_it_goes_with_the_topic() -> None:
    rows = rows_of(ended(5, to=100), ended(6))
    rows.take(changes_of([TopicsMade([DLQ, "t"], 1, 0, KEEP_ALL)], 0, rows))
    rows.take(changes_of([TopicEnded("t")], 0, rows))
    assert Tables(rows).count_ended(DLQ, 0, 100) == 2
    rows.take(changes_of([TopicEnded(DLQ)], 0, rows))
    assert not rows.rows
