"""Carries unflushed data of a database without a write-ahead log over to its next opening.

After a failure from which RocksDB does not resume, the memtables can be read but never flushed. The
difference between the full content and that of the files is found by reading both, row by row. It
is written to files that are ingested when the database is open again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rocksdict import Cache, IngestExternalFileOptions

from kvcq.engine.protocol import KvBatch
from kvcq.engine.rocks.opening import close_database, family_options, open_through_links
from kvcq.engine.rocks.rows import read_options, scan_rows
from kvcq.engine.rocks.sst import write_sst

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rocksdict import Rdict

    from kvcq.engine.protocol import Pair
    from kvcq.engine.rocks.opening import Opened
    from kvcq.engine.rocks.options import Profile
    from kvcq.engine.rocks.sst import SstFile

_PAGE = 1024  # the GIL is held for a millisecond or two
_CACHE_BYTES = 8 << 20
_END = b"\xff" * 8  # above every key of ours


class CarryOver(NamedTuple):
    """Rows to remove, and then files to ingest, family by family."""

    removed: KvBatch
    files: dict[str, SstFile]

    def apply(self, opened: Opened) -> None:
        """Ingest the files, durably. Repeatable.

        The removals must be durable before. Raises the binding's Exception.
        """
        for name, file in self.files.items():
            opened.tables[name].ingest_external_file([str(file.path)], IngestExternalFileOptions())


def carry_over(path: Path, profile: Profile, opened: Opened, directory: Path) -> CarryOver:
    """Compute what the open database `opened` at `path` has beyond its files; new files go to
    `directory`.

    Nothing may be written to it meanwhile. Raises KvcqError, and the binding's Exception. Time:
    reads all rows twice, 300,000 a second or more; the GIL is released between pages.
    """
    removed = KvBatch()
    files: dict[str, SstFile] = {}
    on_disk = open_through_links(path, profile, family_options(profile, Cache(_CACHE_BYTES)))
    try:
        for family in sorted(profile.families, key=lambda family: family.name == profile.last):
            name = family.name
            rows = _differing(opened.tables[name], on_disk.tables[name], name, removed)
            file = write_sst(directory / f"{name}.sst", rows, family)
            if file is not None:
                files[name] = file
    finally:
        close_database(on_disk, flushed=True)
    return CarryOver(removed, files)


def _differing(now: Rdict, before: Rdict, family: str, removed: KvBatch) -> Iterator[Pair]:
    """Yield rows that are not in the files, ascending. Keys that only the files have are added to
    `removed`."""
    options = read_options(_END, fill_cache=False)
    start = b""
    while start < _END:
        pages = [
            scan_rows(table, options, start, _END, _PAGE, reverse=False) for table in (now, before)
        ]
        # Both are complete up to the lower end of a full page.
        end = min((page[-1][0] + b"\0" for page in pages if len(page) == _PAGE), default=_END)
        rows, were = ([row for row in page if row[0] < end] for page in pages)
        if not rows and were:
            removed.delete_ranges.append((family, start, end))
        elif rows != were:
            old, new = dict(were), dict(rows)
            removed.deletes += [(family, key) for key in old if key not in new]
            yield from (row for row in rows if old.get(row[0]) != row[1])
        start = end
