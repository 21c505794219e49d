"""Amounts and words as people write and read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq_client.pb.v1 import jobs_pb2, migration_pb2
from server.texts import (
    byte_count,
    duration,
    size_bytes,
    size_text,
    span_ms,
    span_text,
    whole_number,
    word_of,
)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1.0 KiB"),
        (5 << 30, "5.0 GiB"),
        (1 << 70, "1,048,576.0 PiB"),
    ],
)
def test_sizes(value: float, wanted: str) -> None:
    assert byte_count(value) == wanted


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [
        (0, "0 s"),
        (59.9, "59 s"),
        (66, "1 min 6 s"),
        (7200, "2 h"),
        (93_784, "1 d 2 h"),
        (-1, "0 s"),
    ],
)
def test_durations(seconds: float, wanted: str) -> None:
    assert duration(seconds) == wanted


@pytest.mark.parametrize(
    ("text", "most", "wanted"),
    [
        ("0", 9, 0),
        ("9", 9, 9),
        ("10", 9, None),
        ("", 9, None),
        ("-1", 99, None),
        ("٣", 9, None),
        ("9" * 5000, (1 << 63) - 1, None),
    ],
)
def test_whole_numbers(text: str, most: int, wanted: int | None) -> None:
    assert whole_number(text, most) == wanted


def test_words_of_the_api() -> None:
    assert word_of(jobs_pb2.JobStatus, jobs_pb2.JOB_STATUS_RUNNING) == "RUNNING"
    assert word_of(migration_pb2.MigrationPhase, migration_pb2.MIGRATION_PHASE_DOUBLE_WRITE) == (
        "DOUBLE_WRITE"
    )
    assert word_of(jobs_pb2.JobStatus, jobs_pb2.JOB_STATUS_UNSPECIFIED) == ""


@given(st.integers(0, 2**63 - 1))
def test_an_amount_is_read_as_it_was_written(amount: int) -> None:
    for read, write in ((span_ms, span_text), (size_bytes, size_text)):
        found = read(write(amount))
        # Digits beyond those of a time or size that anybody types are not read.
        assert found == amount or len(str(amount)) > 15


@pytest.mark.parametrize(
    ("text", "ms", "size"),
    [
        ("0", 0, 0),
        ("90m", 5_400_000, None),
        ("1.5h", 5_400_000, None),
        ("36h", 129_600_000, None),
        ("36", None, 36),
        ("10GiB", None, 10 << 30),
        ("500MB", None, 500_000_000),
        ("-1h", None, None),
        ("", None, None),
        ("h", None, None),
        ("1e3s", None, None),
    ],
)
def test_amounts_that_are_typed(text: str, ms: int | None, size: int | None) -> None:
    assert (span_ms(text), size_bytes(text)) == (ms, size)


def test_the_shortest_text_of_an_amount() -> None:
    assert [span_text(one) for one in (129_600_000, 5_400_000, 604_800_000, 1001)] == [
        *("36h", "90m", "7d", "1001ms"),
    ]
    assert [size_text(one) for one in (10 << 30, 4097, 500_000_000)] == ["10GiB", "4097", "500MB"]
