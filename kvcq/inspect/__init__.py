"""Verifies that a store holds what its log says.

The log is walked once. The rows derived from its live records (see store/topics/admission.py) are
compared with each side: sums prove that both are equal; where they differ, the rows are compared
one by one. A side is anything that implements `Side`; the one in RocksDB is here. `scrub` verifies
a running store piece by piece. Every finding is a `Finding`. Uses store/ and the tables of kvcq/;
writes nothing.
"""

from kvcq.inspect.findings import Checked, CheckResult, Finding, Findings, Kind, Remedy, size_text
from kvcq.inspect.log import LogCheck
from kvcq.inspect.lookup import Lookup, is_at_place
from kvcq.inspect.rows import ROCKSDB
from kvcq.inspect.scrub import Scrub
from kvcq.inspect.side import OpenedStore, Side, Take, WalkAgain
from kvcq.inspect.state import read_entries, state_records
from kvcq.inspect.store import database_alone, inspect_store, open_database
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
    "inspect_store",
    "is_at_place",
    "open_database",
    "read_entries",
    "size_text",
    "state_records",
]
