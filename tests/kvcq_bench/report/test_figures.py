"""Figures of several cases stand side by side, under names that people read."""

from __future__ import annotations

import pytest

from kvcq_bench.report.figures import Table, in_words, tables


def test_cases_are_columns_and_single_figures_come_first() -> None:
    figures = {
        "put_messages_per_s part 1": 10.0,
        "pace_mb_per_s part 1": 1.0,
        "kills": 2.0,
        "put_messages_per_s part 2": 11.0,
        "pace_mb_per_s part 2": 2.0,
        "close_s files": 3.0,
    }
    assert tables(figures) == [
        Table([""], {"kills": [2.0], "close, s files": [3.0]}),
        Table(
            ["part 1", "part 2"],
            {"put messages/s": [10.0, 11.0], "pace, MB/s": [1.0, 2.0]},
        ),
    ]
    assert tables({}) == []


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("ready_after_kill_s", "ready after kill, s"),
        ("private_memory_growth_mb_per_hour", "private memory growth, MB/hour"),
        ("disk_bytes_a_queue", "disk, bytes a queue"),
        ("put_rate_kept", "put rate kept"),
    ],
)
def test_a_unit_is_written_as_usual(what: str, words: str) -> None:
    assert in_words(what) == words
