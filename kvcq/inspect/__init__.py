"""Whether a store holds what its log says: the one judge of that question.

The log is walked once. What is derived from its records (store/admission.py says which of them
live) is held against what each side has: sums prove that both are the same, and where they are not,
the rows that differ are looked at one by one. A side is whatever fits `Side`; the one in RocksDB is
here. `scrub` verifies a store that runs, piece by piece. Every finding is a `Finding`. Uses store/
and the tables of kvcq/; nothing is written.
"""

from kvcq.inspect.findings import Checked, CheckResult, Finding, Findings, Kind, Remedy, size_text
from kvcq.inspect.log import LogCheck
from kvcq.inspect.lookup import Lookup, stands_in
from kvcq.inspect.rows import ROCKSDB
from kvcq.inspect.scrub import Scrub
from kvcq.inspect.side import OpenedStore, Side, Take, WalkAgain
from kvcq.inspect.state import read_entries, state_records
from kvcq.inspect.store import database_alone, look_over, open_database
from kvcq.inspect.sums import BucketSums, RowSums

__all__ = [
    "ROCKSDB",
    "BucketSums",
    "CheckResult",
    "Checked",
    "Finding",
    "Findings",
    "Kind",
    "LogCheck",
    "Lookup",
    "OpenedStore",
    "Remedy",
    "RowSums",
    "Scrub",
    "Side",
    "Take",
    "WalkAgain",
    "database_alone",
    "look_over",
    "open_database",
    "read_entries",
    "size_text",
    "stands_in",
    "state_records",
]
