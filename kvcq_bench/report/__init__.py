"""Results on disk, goals and their outcome, tables, and a page with plots.

Only uses `errors`, so a report can be read on a machine without a store.
"""

from kvcq_bench.report.goal import Goal
from kvcq_bench.report.html_page import page
from kvcq_bench.report.judging import MET, Outcome, judge
from kvcq_bench.report.numbers import short, spread_of
from kvcq_bench.report.results import RATE, Figure, Report, Result, read_report, write_report
from kvcq_bench.report.tables import (
    Table,
    conclusion,
    costs,
    figures,
    goals,
    met_text,
    rates,
)

__all__ = [
    "MET",
    "RATE",
    "Figure",
    "Goal",
    "Outcome",
    "Report",
    "Result",
    "Table",
    "conclusion",
    "costs",
    "figures",
    "goals",
    "judge",
    "met_text",
    "page",
    "rates",
    "read_report",
    "short",
    "spread_of",
    "write_report",
]
