"""Tables: units, spreads, and how many times as fast ours is."""

from __future__ import annotations

import pytest

from kvcq_bench.report import Figure, Report, Result, costs, figures, rates, short, spread_of

_COST = {"server processor time": Figure(3.0, "us"), "client processor time": Figure(2.0, "us")}


def _report() -> Report:
    report = Report("t", {}, {}, {}, {"kvcq": "kvcq", "redis": "Redis", "nats": "NATS"})
    for system, values in (("kvcq", (300, 400)), ("redis", (100, 200))):
        report.results += [
            Result(system, "put", number, {"rate": Figure(value, "messages/s"), **_COST})
            for number, value in enumerate(values)
        ]
    return report


def test_rates_stand_beside_each_other_with_ratio_and_spread() -> None:
    table = rates(_report(), ["put", "absent"], ["kvcq", "redis", "nats"])
    assert table.head == ["work", "kvcq", "Redis"]
    assert table.rows == [["put, messages/s", "350 (300 to 400)", "150 (100 to 200), 2.5x"]]
    assert table.markdown().splitlines()[1] == "| --- | --- | --- |"


def test_costs_are_of_server_and_client() -> None:
    assert costs(_report(), ["put"], ["kvcq", "nats"]).rows == [["put", "3 + 2", "-"]]


def test_figures_of_two_results_have_their_ratio_and_unit() -> None:
    one, other = _report().of("put", "redis")
    del other.figures["client processor time"]
    head, rows = figures([one, other])
    assert head == ["figure", "1", "2", "ratio", "unit"]
    assert rows[0] == ["rate", "100", "200", "2.00", "messages/s"]
    assert rows[2] == ["client processor time", "2", "", "", "us"]
    assert figures([one]).rows[0] == ["rate", "100", "messages/s"]


def test_single_round_has_no_spread() -> None:
    one = spread_of([1234.0])
    assert one is not None
    assert one.text() == "1,234"
    assert spread_of([]) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.01234, "0.0123"), (12.345, "12.3"), (999.4, "999"), (113_456, "113,000")],
)
def test_three_digits_are_shown(value: float, text: str) -> None:
    assert short(value) == text
