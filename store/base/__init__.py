"""Helpers that know nothing of messages: clocks, locks, file operations, processes.

The only part of a store that they use is its errors.
"""

from store.base.busy import retry_while_busy
from store.base.changes import Changes
from store.base.checks import check_time_within, check_within
from store.base.child_process import import_root, lines_of, start_module
from store.base.clock import Clock, SystemClock
from store.base.files import (
    DIRECTORY_MODE,
    FILE_MODE,
    TEMPORARY_SUFFIX,
    free_name,
    fsync_directory,
    make_directory,
    move_aside,
    open_new,
    raising_disk_full,
    raising_out_of_descriptors,
    write_file,
)
from store.base.histogram import Counted, Histogram
from store.base.lock import Lock
from store.base.progress import Progress, no_progress
from store.base.wake import Wake

__all__ = [
    "DIRECTORY_MODE",
    "FILE_MODE",
    "TEMPORARY_SUFFIX",
    "Changes",
    "Clock",
    "Counted",
    "Histogram",
    "Lock",
    "Progress",
    "SystemClock",
    "Wake",
    "check_time_within",
    "check_within",
    "free_name",
    "fsync_directory",
    "import_root",
    "lines_of",
    "make_directory",
    "move_aside",
    "no_progress",
    "open_new",
    "raising_disk_full",
    "raising_out_of_descriptors",
    "retry_while_busy",
    "start_module",
    "write_file",
]
