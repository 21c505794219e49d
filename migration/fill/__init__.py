"""Brings a side up from the log: batch by batch, or through sorted files of another process.

Uses sides and state, and of columnar the process that makes those.
"""

from migration.fill.bulk import end_before, remove_leftovers
from migration.fill.catch_up import Filler
from migration.fill.feed import LogFeed
from migration.fill.pace import Pace

__all__ = [
    "Filler",
    "LogFeed",
    "Pace",
    "end_before",
    "remove_leftovers",
]
