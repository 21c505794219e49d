"""Opens and closes a database through the binding."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rocksdict import AccessType, ColumnFamily, Options, Rdict

from kvcq.engine.rocks.failures import opening_failure
from kvcq.engine.rocks.options import build_database_options, build_family_options

if TYPE_CHECKING:
    from rocksdict import Cache

    from kvcq.engine.rocks.options import Profile

#: Files that an opening writes itself: RocksDB its info log, the binding a file about the encoding
#: of keys.
_NOT_LINKED = ("LOG", "LOCK", "rocksdict-config.json")


class Opened(NamedTuple):
    """An open database. No part of it may outlive a call of the engine."""

    db: Rdict
    options: Options
    tables: dict[str, Rdict]
    handles: dict[str, ColumnFamily]
    links: Path | None  # the directory of links through which a read-only database is opened


def family_options(profile: Profile, cache: Cache) -> dict[str, Options]:
    return {family.name: build_family_options(family, cache) for family in profile.families}


def open_writable(
    path: Path, profile: Profile, families: dict[str, Options], *, create: bool = False
) -> Opened:
    """Open the database at `path`; `create` creates one if there is none. Missing families are
    created.

    Raises EngineFailedError; EngineUnavailableError if the cause is not in the files;
    EngineNewerError if it has families that `profile` does not name.
    """
    options = build_database_options(profile, create=create)
    try:
        return _open(path, options, profile, families, AccessType.read_write(), None)
    except Exception as error:
        raise opening_failure(path, str(error)) from error


def open_through_links(path: Path, profile: Profile, families: dict[str, Options]) -> Opened:
    """Open the database at `path` read-only, without changing its directory.

    The directory may be read-only, and may belong to another program: RocksDB opens a directory of
    links to the files, and files written by an opening go there. Raises like `open_writable`.
    """
    links = Path(tempfile.mkdtemp(prefix="kvcq-read-"))
    try:
        for entry in path.iterdir():
            if entry.is_file() and not entry.name.startswith(_NOT_LINKED):
                (links / entry.name).symlink_to(entry.absolute())
        options = build_database_options(profile, create=False)
        access = AccessType.read_only(error_if_log_file_exist=False)
        return _open(links, options, profile, families, access, links)
    except Exception as error:
        shutil.rmtree(links, ignore_errors=True)
        raise opening_failure(path, str(error).replace(str(links), str(path))) from error


def close_database(opened: Opened, *, flushed: bool) -> None:
    """Close the database. Unless it was flushed, closing must not flush single families.

    Raises the binding's Exception if a step failed; everything is closed then.
    """
    tables = list(opened.tables.values())
    opened.tables.clear()
    opened.handles.clear()
    with ExitStack() as stack:
        if opened.links is not None:
            stack.callback(shutil.rmtree, opened.links, ignore_errors=True)
        if flushed:
            # By name, so that a caught exception that refers to our frame does not keep it open.
            for table in (opened.db, *reversed(tables)):
                stack.callback(table.close)


def list_families(path: Path) -> list[str]:
    """Names of the families of the database at `path`. Does not change its directory.

    Raises like `open_writable`.
    """
    try:
        return Rdict.list_cf(str(path), Options(raw_mode=True))
    except Exception as error:
        raise opening_failure(path, str(error)) from error


def scratch_of(path: Path) -> Path:
    """The scratch directory, beside the database, since RocksDB needs the same file system for
    links."""
    return path.with_name(f"{path.name}.tmp")


def _open(
    path: Path,
    options: Options,
    profile: Profile,
    families: dict[str, Options],
    access: AccessType,
    links: Path | None,
) -> Opened:
    db = Rdict(str(path), options, families, access)
    return Opened(
        db,
        options,
        {name: db.get_column_family(name) for name in profile.names},
        {name: db.get_column_family_handle(name) for name in profile.names},
        links,
    )
