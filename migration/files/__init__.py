"""The file queue engine: a ConsumeQueueStore in RocketMQ's queue and index files.

Also compares its files with the log. Only uses the formats of the migration.
"""

from migration.files.checkpoint import CHECKPOINT_FILE, note_whole, read_checkpoint
from migration.files.file_check import FileCheck
from migration.files.file_side import FileSide
from migration.files.options import TRASH_DIRECTORY, FileQueueOptions
from migration.files.queue_check import NOWHERE
from migration.files.queues import check_name
from migration.files.record_lookup import RecordLookup
from migration.files.store import FileQueueStore

__all__ = [
    "CHECKPOINT_FILE",
    "NOWHERE",
    "TRASH_DIRECTORY",
    "FileCheck",
    "FileQueueOptions",
    "FileQueueStore",
    "FileSide",
    "RecordLookup",
    "check_name",
    "note_whole",
    "read_checkpoint",
]
