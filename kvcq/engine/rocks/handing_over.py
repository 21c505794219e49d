"""Prepares a closed database for another program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocksdict import Cache

from kvcq.engine.rocks.failures import failure
from kvcq.engine.rocks.opening import close_database, family_options, list_families, open_writable
from kvcq.engine.rocks.options import small_profile
from store.base import fsync_directory

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

#: Files that an opening for writing leaves beside RocksDB's own: the binding's, and the note of
#: programs before format 2.
_LEFT_BEHIND = ("rocksdict-config.json", "KVCQ-NOTE")
_CACHE_BYTES = 1 << 20


def hand_over(path: Path, keep: Collection[str] | None = None) -> None:
    """Drop all families but those to `keep`, if any are given, and our own files.

    Another program only names the families that it knows, and RocksDB does not open a database
    unless all are named. It also writes to the database, so our note of its files would become
    wrong. Repeatable, and durable on return. Raises EngineFailedError; EngineUnavailableError while
    it is open elsewhere.
    """
    names = list_families(path)
    gone = [] if keep is None else [name for name in names if name not in keep]
    if gone:
        profile = small_profile(*names)
        opened = open_writable(path, profile, family_options(profile, Cache(_CACHE_BYTES)))
        try:
            for name in gone:
                opened.tables.pop(name)
                opened.handles.pop(name)
                opened.db.drop_column_family(name)
        except Exception as error:
            raise failure("drop of families", error) from error
        finally:
            close_database(opened, flushed=True)
            del opened
    for name in _LEFT_BEHIND:
        (path / name).unlink(missing_ok=True)
    fsync_directory(path)
