"""Many records: judged in columns as one by one."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.format.record import CRC_ITEM_BYTES
from store.format.records import Records
from store.log import record_columns as module
from store.log.record_columns import MANY, copy_records
from tests.support.log_entries import BASE, Entry, log_of

Places = list[tuple[int, int]]


def _log(entries: list[Entry]) -> tuple[bytes, Places]:
    data, starts = log_of(entries)
    return data, [(s, e - s) for s, e in pairwise([*starts, BASE + len(data)])]


def _apart(data: bytes, places: Places) -> list[bytes]:
    return [data[at - BASE : at - BASE + size] for at, size in places]


entries = st.builds(
    lambda body, queue_id, offset: Entry(body=body, queue_id=queue_id, queue_offset=offset),
    st.binary(max_size=40),
    st.integers(0, 3),
    st.integers(0, (1 << 63) - 1),
)


@given(
    st.lists(entries, min_size=1, max_size=4),
    st.sampled_from([1, 2, MANY - 1, MANY, MANY + 1, 3 * MANY]),
    st.data(),
)
def test_columns_say_what_a_look_at_each_record_says(
    kinds: list[Entry], count: int, data: st.DataObject
) -> None:
    log, places = _log([kinds[at % len(kinds)] for at in range(count)])
    if data.draw(st.booleans(), "with gaps"):
        places = places[:: data.draw(st.integers(2, 3))]
    damage = data.draw(st.sampled_from(["none", "bit", "item", "place", "end"]))
    if damage in ("bit", "item"):
        at, size = data.draw(st.sampled_from(places))
        least = 8 * (size - CRC_ITEM_BYTES) if damage == "item" else 0
        bit = 8 * (at - BASE) + data.draw(st.integers(least, 8 * size - 1))
        turned = bytearray(log)
        turned[bit // 8] ^= 1 << bit % 8
        log = bytes(turned)
    elif damage == "place":
        which = data.draw(st.integers(0, len(places) - 1))
        at, size = places[which]
        places[which] = at, size - 1
    elif damage == "end":
        log = log[: -data.draw(st.integers(1, 60))]

    records, are_whole = copy_records(log, BASE, places)
    plain = Records(_apart(log, places))

    assert are_whole == module._are_whole(list(plain), places)
    is_there = damage == "end" and sum(places[-1]) <= BASE + len(log)
    assert are_whole == (damage == "none" or is_there)
    assert len(records) == len(places)
    if damage in ("none", "bit", "item"):
        assert b"".join(records.parts) == b"".join(plain)
        assert records.size_bytes == plain.size_bytes
        assert records == list(plain)
        for name in ("record_size", "queue_id", "queue_offset", "physical_offset"):
            assert records.column(name) == plain.column(name)


@pytest.mark.parametrize("count", [3, MANY])
def test_each_reason_not_to_be_whole_is_seen(count: int) -> None:
    log, places = _log([Entry(body=b"%d" % at) for at in range(count)])

    def are_whole(source: bytes, places: Places) -> bool:
        return copy_records(source, BASE, places)[1]

    assert are_whole(log, places)
    assert not are_whole(log, [(at + 1, size) for at, size in places])
    assert not are_whole(log, [(at, 1) for at in range(BASE, BASE + count)])
    assert not are_whole(log, [(at, size - 1) for at, size in places])
    assert not are_whole(log[:-1], places)
    # A CRC that is right as a number, with a digit that is none, and every other byte of the item.
    for at in range(1, CRC_ITEM_BYTES + 1):
        for other in (b"\x2f", b"\x3a", b"\xff"):
            broken = log[:-at] + other + log[len(log) - at + 1 :]
            assert not are_whole(broken, places), (at, other)


@pytest.mark.parametrize("count", [3, MANY])
def test_a_record_without_a_seal_is_not_whole(count: int) -> None:
    for position in (0, 1, count - 1):
        made = [Entry()] * count
        made[position] = Entry(sealed=False)
        log, places = _log(made)
        assert not copy_records(log, BASE, places)[1]


def test_nothing_is_whole_of_nothing() -> None:
    assert copy_records(b"", BASE, []) == (Records(), False)
    assert not copy_records(b"", 0, [(0, 0)])[1]


def test_records_that_lie_together_are_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    log, places = _log([Entry()] * 3)
    apart = _apart(log, places)
    assert copy_records(log, BASE, places)[0].parts == apart
    monkeypatch.setattr(module, "MANY", 2)
    assert copy_records(log, BASE, places)[0].parts == (log,)
    assert copy_records(log, BASE, places[::2])[0].parts == (apart[0] + apart[2],)
