"""Percentiles of single calls."""

from __future__ import annotations

from tests.peers.values import Sample, Timed, sample_of


def test_percentiles_are_of_the_calls() -> None:
    timed = Timed.of_calls([number / 1e6 for number in range(100, 0, -1)], 2.0, each=32)
    assert timed.count == 3200
    assert timed.p50_us is not None
    assert timed.p99_us is not None
    assert round(timed.p50_us) == 51
    assert round(timed.p99_us) == 100


def test_no_call_has_no_percentile() -> None:
    assert Timed.of_calls([], 1.0) == Timed(0, 1.0)


def test_sample_comes_back_from_its_document() -> None:
    sample = Sample("a", "work", "before fsync", "cold", 0, Timed(10, 2.0).document())
    assert sample_of(sample.document()) == sample
    assert sample.rate == 5.0
