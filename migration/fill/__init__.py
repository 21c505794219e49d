"""Brings a side up from the log: batch by batch, or through sorted files of another process.

Uses sides and state, and of columnar the process that makes those.
"""

from migration.fill.bulk import remove_leftovers
from migration.fill.catch_up import Filler, GainedPart
from migration.fill.feed import LogFeed
from migration.fill.pace import Pace
from migration.fill.package_root import import_root

__all__ = [
    "Filler",
    "GainedPart",
    "LogFeed",
    "Pace",
    "import_root",
    "remove_leftovers",
]
