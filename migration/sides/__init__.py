"""The two stores of queues, files and RocksDB, behind one dispatch; and how each is opened."""

from migration.sides.double import DoubleQueueStore
from migration.sides.file_side_store import FileSideStore
from migration.sides.opener import SideOpener, file_options, open_files
from migration.sides.side import IngestingStore, Side, SideStore, ends_below

__all__ = [
    "DoubleQueueStore",
    "FileSideStore",
    "IngestingStore",
    "Side",
    "SideOpener",
    "SideStore",
    "ends_below",
    "file_options",
    "open_files",
]
