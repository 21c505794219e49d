"""Reads: bounds, units, verified records, and what is hidden in a queue.

A read changes nothing in the store. `ReadPath` repairs what it finds missing.
"""

from store.reads.filters import Filter, TagFilter, parse_filter
from store.reads.latest_messages import LatestKept, LatestMessages
from store.reads.lookups import Lookups
from store.reads.pull_plan import Pulled, PullPlan
from store.reads.read_path import ReadPath
from store.reads.reader import Reader
from store.reads.sql import SqlFilter
from store.reads.time_search import TimeSearch
from store.reads.topic_retention import TopicRetention
from store.reads.unit_search import first_unit, first_where

__all__ = [
    "Filter",
    "LatestKept",
    "LatestMessages",
    "Lookups",
    "PullPlan",
    "Pulled",
    "ReadPath",
    "Reader",
    "SqlFilter",
    "TagFilter",
    "TimeSearch",
    "TopicRetention",
    "first_unit",
    "first_where",
    "parse_filter",
]
