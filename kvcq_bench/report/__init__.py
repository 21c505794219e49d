"""What a run leaves to read: its document on disk, the goals, the page with its plots, the summary.

Uses `errors` alone: a report can be read where nothing of a store is.
"""

from kvcq_bench.report.comparison import compare, comparison_page, differing_conditions
from kvcq_bench.report.document import FORMAT, read_report, write_report
from kvcq_bench.report.numbers import number_text
from kvcq_bench.report.page import run_page
from kvcq_bench.report.summary import met_text, summarise

__all__ = [
    "FORMAT",
    "compare",
    "comparison_page",
    "differing_conditions",
    "met_text",
    "number_text",
    "read_report",
    "run_page",
    "summarise",
    "write_report",
]
