"""The checkers must be able to fail: planted losses, repeats, swaps and wrong bytes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq_bench.bodies import MIN_BODY_BYTES, BodyMaker
from kvcq_bench.errors import CheckFailedError, WrongBodyError
from kvcq_bench.histogram import Histogram
from kvcq_bench.ledger import Checker, Ledger
from kvcq_client import StoredMessage, split_records
from tests.support.log_writer import Entry, LogWriter

BODIES = BodyMaker(seed=1, max_bytes=4096)


def _messages(streams_and_numbers: list[tuple[int, int]]) -> list[StoredMessage]:
    with tempfile.TemporaryDirectory() as directory:
        writer = LogWriter(Path(directory), 1 << 20)
        rows = writer.extend(
            [Entry(body=BODIES.make(stream, number, 100)) for stream, number in streams_and_numbers]
        )
    return split_records(b"".join(row.record for row in rows))


def _ledger(sent: list[int]) -> Ledger:
    ledger = Ledger(len(sent), BODIES)
    for stream, count in enumerate(sent):
        ledger.sent[stream] = count
    return ledger


@given(
    st.integers(0, (1 << 32) - 1),
    st.integers(0, (1 << 63) - 1),
    st.integers(MIN_BODY_BYTES, 4096),
)
def test_a_body_says_what_it_is(stream: int, number: int, size: int) -> None:
    body = BODIES.make(stream, number, size)
    assert len(body) == size
    assert BODIES.check(body) == (stream, number)


@given(st.data())
def test_any_flipped_bit_of_a_body_is_found(data: st.DataObject) -> None:
    body = bytearray(BODIES.make(3, 4, 200))
    bit = data.draw(st.integers(0, 8 * len(body) - 1))
    body[bit // 8] ^= 1 << bit % 8
    with pytest.raises(WrongBodyError):
        BODIES.check(bytes(body))


def test_a_body_of_another_run_is_found() -> None:
    with pytest.raises(WrongBodyError, match="not of this run"):
        BODIES.check(BodyMaker(seed=2, max_bytes=4096).make(0, 0, 100))
    with pytest.raises(WrongBodyError, match="not from a run"):
        BODIES.check(b"short")


def test_all_is_well() -> None:
    checker = Checker(_ledger([2, 1]))
    checker.see(_messages([(0, 0), (1, 0), (0, 1)]))
    checker.finish([0, 1])
    assert checker.checked_messages == 3


@pytest.mark.parametrize(
    ("seen", "complaint"),
    [
        ([(0, 0), (0, 2)], "missing"),
        ([(0, 0), (0, 0)], "repeated"),
        ([(0, 1), (0, 0)], "missing"),
        ([(0, 0), (0, 1), (0, 0)], "out of order"),
    ],
)
def test_loss_repeat_and_order_are_found(seen: list[tuple[int, int]], complaint: str) -> None:
    checker = Checker(_ledger([3]))
    with pytest.raises(CheckFailedError, match=complaint):
        checker.see(_messages(seen))


def test_a_lost_tail_is_found() -> None:
    checker = Checker(_ledger([3]))
    checker.see(_messages([(0, 0), (0, 1)]))
    with pytest.raises(CheckFailedError, match="2 messages were read of 3"):
        checker.finish([0])


def test_a_message_in_the_wrong_queue_is_found() -> None:
    checker = Checker(_ledger([1, 1]))
    with pytest.raises(CheckFailedError, match="in the queue of stream 1"):
        checker.see(_messages([(0, 0)]), stream=1)


def test_what_was_refused_may_be_missing_or_there() -> None:
    ledger = _ledger([4])
    ledger.failed([(0, 1), (0, 3)])
    checker = Checker(ledger)
    checker.see(_messages([(0, 0), (0, 2)]))
    checker.finish([0])
    checker = Checker(ledger)
    checker.see(_messages([(0, 0), (0, 1), (0, 2), (0, 3)]))
    checker.finish([0])
    with pytest.raises(CheckFailedError):
        Checker(ledger).see(_messages([(0, 2)]))


@given(st.lists(st.floats(1e-6, 100), min_size=1, max_size=200))
def test_percentiles_are_right_to_two_per_cent(seconds: list[float]) -> None:
    histogram = Histogram()
    for one in seconds:
        histogram.add(one)
    ordered = sorted(seconds)
    for share in (50.0, 90.0, 100.0):
        exact = ordered[max(0, -(-len(ordered) * int(share) // 100) - 1)]
        assert exact * 0.97 <= histogram.percentile(share) <= exact * 1.03
    assert histogram.summary()["count"] == len(seconds)
    assert Histogram().summary() == {"count": 0}
