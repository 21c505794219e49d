"""Windows against the plainest thing they could be: a dict of offsets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.state import (
    FRESH,
    SPAN,
    Committed,
    CorruptRowError,
    GroupEnded,
    Lease,
    Leased,
    Passed,
    Tables,
    TopicEnded,
    Window,
    changes_of,
    runs_of,
    unpack_window,
)
from store.state.windows import pack_window
from tests.support.state import DictRows

_MASKS = st.one_of(st.integers(1, (1 << SPAN) - 1), st.integers(1, 7))
_FIRST = st.integers(0, 100)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("lease"), _FIRST, _MASKS, st.integers(1, 1 << 40)),
        st.tuples(st.just("finish"), _FIRST, _MASKS, st.just(0)),
        st.tuples(st.just("pass"), _FIRST, st.just(1), st.just(0)),
        st.tuples(st.just("see"), _FIRST, _MASKS, st.integers(-9, 9)),
    ),
    max_size=12,
)


def offsets_of(first: int, mask: int) -> list[int]:
    return [first + bit for bit in range(SPAN) if mask >> bit & 1]


@given(_STEPS)
def test_a_window_is_a_dict_of_offsets(steps: list[tuple[str, int, int, int]]) -> None:
    window, held, next_offset = FRESH, dict[int, int](), 0
    keys = dict[int, int]()
    for what, first, mask, nonce in steps:
        each = offsets_of(first, mask)
        if what == "lease":
            window = window.leased(Lease(first, mask, 1, nonce, 5, 5))
            held |= dict.fromkeys(each, nonce)
            next_offset = max(next_offset, each[-1] + 1)
        elif what == "finish":
            window = window.without(first, mask)
            held = {offset: nonce for offset, nonce in held.items() if offset not in each}
            keys = {offset: key for offset, key in keys.items() if offset not in each}
        elif what == "see":
            window = window.seen(first, mask, [nonce] * len(each))
            keys |= dict.fromkeys(each, nonce)
            next_offset = max(next_offset, each[-1] + 1)
        else:
            window = window.passed(first)
            next_offset = max(next_offset, first)
        window = unpack_window(pack_window(window))
        assert window.next_offset == next_offset
        found = [(offset, lease.nonce) for lease in window.leases for offset in lease.offsets()]
        assert dict(found) == held
        assert len(found) == len(held) == window.in_flight
        assert window.keys == tuple(sorted(keys.items()))
        assert window.undone == (len(keys) or len(held))
        assert window.done_below == min(keys or held, default=next_offset)


@given(st.sets(st.integers(0, 300)))
def test_runs_have_each_offset_once(offsets: set[int]) -> None:
    runs = list(runs_of(sorted(offsets)))
    assert [one for first, mask in runs for one in offsets_of(first, mask)] == sorted(offsets)
    assert all(0 < mask < 1 << SPAN for _, mask in runs)


def test_a_lease_ends_when_its_time_comes_and_when_time_fell_below_its_beginning() -> None:
    lease = Lease(0, 1, 1, 7, until_ms=100_000, lease_ms=30_000)
    assert [lease.is_over(now) for now in (70_000, 99_999, 100_000)] == [False, False, True]
    assert lease.is_over(69_999)  # it would last longer than it ever was


@pytest.mark.parametrize("far", [SPAN, 1 << 40, (1 << 63) - 1])
def test_a_lease_has_nothing_of_what_is_far_away(far: int) -> None:
    """A message that is held for long lies many millions behind the others of its queue."""
    lease = Lease(far, 1 << SPAN - 1, 1, 7, 100, 50)
    other = Lease(0, (1 << SPAN) - 1, 1, 8, 100, 50)
    window = Window(far + SPAN, (other, lease))
    assert lease.part(0, 1) == other.part(far, 1) == 0
    assert window.without(far + SPAN - 1, 1).leases == (other,)
    assert window.without(0, (1 << SPAN) - 1).leases == (lease,)


def test_a_row_of_another_form_is_refused() -> None:
    with pytest.raises(CorruptRowError):
        unpack_window(b"\x03" + bytes(8))
    for size in (0, 8, 12, 27, 29):
        with pytest.raises(CorruptRowError):
            unpack_window(b"\x02" + bytes(size))
    with pytest.raises(CorruptRowError):
        unpack_window(b"\x01" + bytes(9))


def test_windows_end_with_their_topic_and_with_their_group() -> None:
    rows = DictRows()
    made = [Passed(g, t, 1, 5) for g in ("g", "gg") for t in ("t", "tt")]
    rows.take(changes_of([*made, Committed("g", "t", 0, 3)], 0, rows))
    rows.take(changes_of([TopicEnded("t")], 9, rows))
    tables = Tables(rows)
    assert tables.list_windows("g", None, 9) == [("tt", 1, Window(5, ()))]
    assert tables.readers("t") == []
    rows.take(changes_of([GroupEnded("g")], 10, rows))
    assert tables.list_windows("g", None, 9) == []
    assert tables.readers("tt") == ["gg"]
    assert tables.windows("gg", "tt", [0, 1]) == [FRESH, Window(5, ())]


def test_what_is_handed_over_again_is_in_one_lease_alone() -> None:
    rows = DictRows()
    first = Leased("g", "t", 0, Lease(10, 0b1111, 1, 7, 100, 50), how=1)  # type: ignore[arg-type]
    again = Leased("g", "t", 0, Lease(11, 0b11, 2, 8, 200, 50), how=1)  # type: ignore[arg-type]
    rows.take(changes_of([first, again], 0, rows))
    (window,) = Tables(rows).windows("g", "t", [0])
    assert window == Window(14, (Lease(10, 0b1001, 1, 7, 100, 50), again.lease))
