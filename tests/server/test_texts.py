"""Amounts and words as people write and read them."""

from __future__ import annotations

import pytest

from kvcq_client.pb.v1 import jobs_pb2, migration_pb2
from server.texts import byte_count, duration, whole_number, word_of


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
    assert word_of(migration_pb2.Route, migration_pb2.ROUTE_UNSPECIFIED) == ""
