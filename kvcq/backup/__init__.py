"""Backups of an open store: taken, listed, verified, restored up to a point in time.

A backup is what a crash would leave, at one dispatch point: the log up to there, a copy of the
database, and a manifest with length and CRC-32C of every file. So ordinary recovery opens a
restored store, and `kvcq check` works on it as on any other.

The place of the backups, a directory or a bucket, has each file once, under a name with its length
and checksum: see `manifest`. Files are complete before a manifest names them, and the manifest is
written last. An interrupted backup, after a full disk or a kill, does not count, and the next one
reuses its files.

Uses the store, the engine and the tables; it knows nothing of migrations or of the server. The
caller says which database serves the queues.
"""

from kvcq.backup.copying import Taken
from kvcq.backup.manifest import Backup
from kvcq.backup.places import keeps_backups, open_place
from kvcq.backup.process import copy_in_process
from kvcq.backup.pruning import prune
from kvcq.backup.reading import choose_backup, choose_by_id, list_backups
from kvcq.backup.restoring import Cut, restore
from kvcq.backup.taking import take_backup
from kvcq.backup.verifying import Broken, verify

__all__ = [
    "Backup",
    "Broken",
    "Cut",
    "Taken",
    "choose_backup",
    "choose_by_id",
    "copy_in_process",
    "keeps_backups",
    "list_backups",
    "open_place",
    "prune",
    "restore",
    "take_backup",
    "verify",
]
