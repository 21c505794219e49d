"""Batches as our encoder makes them are never taken for faulty ones, however the log is read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvcq.inspect.batch_places import BatchPlaces
from store.format import DISTANCE_SHIFT, LAST, PLACE, PREPARED_AT, SYS_FLAG_BYTE_AT

_SIZE = 112  # of each record here: as long as its header with two hosts of IPv6


def record(place: int, flags: int) -> bytes:
    data = bytearray(_SIZE)
    data[SYS_FLAG_BYTE_AT] = flags
    at = PREPARED_AT + {0: 16, 0x10: 28, 0x20: 28, 0x30: 40}[flags & 0x30]
    data[at : at + 8] = place.to_bytes(8, "big", signed=True)
    return bytes(data)


def batch(count: int, flags: int) -> list[bytes]:
    places = [PLACE + (n * _SIZE << DISTANCE_SHIFT) + n for n in range(count)]
    return [record(place + LAST * (place is places[-1]), flags) for place in places]


flags = st.sampled_from([0, 0x10, 0x20, 0x30])
batches = st.one_of(
    st.builds(batch, st.integers(2, 9), flags),
    st.builds(lambda each: [record(0, each)], flags),
    st.builds(lambda place, each: [record(place, each)], st.sampled_from([0, 77]), st.just(0x8)),
)


def faults(records: list[bytes], start: int, sizes: list[int]) -> list[tuple[int, str, str]]:
    """Of the records from physical offset `start` on, that many at once."""
    found: list[tuple[int, str, str]] = []
    places = BatchPlaces(start, lambda *fault: found.append(fault))
    at = number = 0
    while at < len(records):
        some = records[at : at + sizes[number % len(sizes)]]
        base = start + at * _SIZE
        offsets = [base + n * _SIZE for n in range(len(some))]
        places.take(memoryview(b"".join(some)), base, offsets)
        at += len(some)
        number += 1
    places.end(start + len(records) * _SIZE)
    return found


@given(
    log=st.lists(batches, min_size=1, max_size=9),
    sizes=st.lists(st.integers(1, 9), min_size=1),
    dropped=st.integers(0, 30),
    data=st.data(),
)
def test_only_what_does_not_fit_is_told(
    log: list[list[bytes]], sizes: list[int], dropped: int, data: st.DataObject
) -> None:
    records = [each for one in log for each in one]
    # Whose front is gone with the segments before.
    dropped = min(dropped, len(records) - 1)
    assert faults(records[dropped:], 1000 + dropped * _SIZE, sizes) == []
    inner = [
        (at, n)
        for at, one in enumerate(log)
        for n in range(len(one))
        if len(one) > 1 and (at, n) != (0, 0)
    ]
    if inner:
        at, n = data.draw(st.sampled_from(inner))
        log[at] = log[at][:n] + log[at][n + 1 :]
        shifted = [each for one in log for each in one]
        # A record that was taken out: those behind it lie elsewhere now.
        assert faults(shifted, 1000, sizes)
