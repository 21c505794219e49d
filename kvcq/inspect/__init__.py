"""Verifies that a store holds what its log says.

The log is walked once. The rows derived from its live records (see store/topics/admission.py) are
compared with each side: sums prove that both are equal; where they differ, the rows are compared
one by one. A side is anything that implements `Side`; the one in RocksDB is here. `Comparison` is
that comparison for units, also for sides of a running store. `scrub` verifies a running store piece
by piece. Every finding is a `Finding`. Uses store/ and the tables of kvcq/;
writes nothing.
"""

from kvcq.inspect.comparison import Comparison, Queue
from kvcq.inspect.findings import Checked, CheckResult, Finding, Kind, Remedy, size_text
from kvcq.inspect.log import LogCheck
from kvcq.inspect.lookup import Fault, Lookup, faults_of, is_at_place, request_at
from kvcq.inspect.scrub import Scrub
from kvcq.inspect.side import OpenedStore, Side, Take, WalkAgain
from kvcq.inspect.state import read_entries, state_records
from kvcq.inspect.store import database_alone, inspect_store, open_database
from kvcq.inspect.sums import BucketSums

__all__ = [
    "BucketSums",
    "CheckResult",
    "Checked",
    "Comparison",
    "Fault",
    "Finding",
    "Kind",
    "LogCheck",
    "Lookup",
    "OpenedStore",
    "Queue",
    "Remedy",
    "Scrub",
    "Side",
    "Take",
    "WalkAgain",
    "database_alone",
    "faults_of",
    "inspect_store",
    "is_at_place",
    "open_database",
    "read_entries",
    "request_at",
    "size_text",
    "state_records",
]
