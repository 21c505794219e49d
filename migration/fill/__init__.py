"""Fills a side from the log: batch by batch, or with sorted files from another process."""

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
