"""Saves a plan's inventory of a directory, so that `start` need not read the directory again.

The note is in the user's cache, because a plan changes nothing in the directory. It is valid while
every file has the size, times and inode that it had before the plan read it, and the log ends at
the same place. Otherwise the directory is read again, so a note never hides a change.

A modification time is only trusted if it was older than the clock's resolution before the plan
began, and no process had the store open then: a mapped page that is written again while it waits
for write-back does not change its file's times.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvcq.inspect import Finding, Kind, Remedy
from migration.formats import ChecksumError, read_checked, write_checked
from migration.plan.generations import Generations
from migration.plan.held_back import HeldBack
from migration.plan.layouts import detect_layout
from migration.plan.legacy import Inventory, read_config_with_marks, take_inventory
from migration.plan.log_survey import LogSurvey
from migration.state import FileLayout
from store.errors import StoreError
from store.format import FastParser
from store.log import End, Fall, Run, SegmentSet, walk
from store.store_dir import StoreDir

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.base import Progress

logger = logging.getLogger(__name__)

_VERSION = 5
#: Longer than the resolution of time stamps of any file system in use.
_SETTLED_NS = 2_000_000_000


def take_noted_inventory(root: Path, layout: FileLayout | None, progress: Progress) -> Inventory:
    """Like `take_inventory`, and save the result for `inventory_for_start`."""
    before = _state_of(root, time.time_ns() - _SETTLED_NS)
    inventory = take_inventory(root, layout, progress)
    if before is not None and not inventory.refusals and _state_of(root) == before:
        try:
            path = _path_of(root)
            path.parent.mkdir(0o700, parents=True, exist_ok=True)
            write_checked(path, {**_document(inventory), "files": before})
        except (OSError, RuntimeError) as error:  # RuntimeError: no home directory
            logger.info("the plan is not saved for the start: %s", error)
    return inventory


def inventory_for_start(root: Path, layout: FileLayout | None, progress: Progress) -> Inventory:
    """The saved inventory if nothing has changed since; otherwise that of `take_inventory`."""
    found = _noted(root, layout)
    if found is None:
        return take_inventory(root, layout, progress)
    logger.info("nothing changed in %s since it was planned: it is not read again", root)
    progress("reading the log", 1.0)
    return found


def _noted(root: Path, layout: FileLayout | None) -> Inventory | None:
    try:
        document = read_checked(_path_of(root))
        if document is None or document["version"] != _VERSION:
            return None
        if document["files"] != _state_of(root):
            return None
        inventory = _inventory(root, document)
    except (OSError, RuntimeError, ChecksumError, KeyError, TypeError, ValueError) as error:
        logger.info("the saved plan cannot be used: %s", error)
        return None
    wanted = replace(
        layout or detect_layout(root), index_tags_from=inventory.layout.index_tags_from
    )
    return inventory if wanted == inventory.layout and _ends_there(inventory) else None


def _path_of(root: Path) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    name = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:32]
    return Path(cache) / "kvcq" / f"plan-{name}.json"


def _state_of(root: Path, settled_ns: int | None = None) -> str | None:
    """A digest of sizes, times and inodes of all files.

    None if it would prove nothing: a file changed after `settled_ns`, a process has the store open,
    or a file cannot be examined.
    """
    digest = hashlib.sha256()
    try:
        if StoreDir(root).in_use():
            return None
        for place, found in _files(root, ""):
            times = (found.st_mtime_ns, found.st_ctime_ns)
            if settled_ns is not None and max(times) > settled_ns:
                return None
            known = (found.st_size, *times, found.st_dev, found.st_ino)
            digest.update(f"{place}\0{known}\n".encode(errors="surrogateescape"))
    except OSError as error:
        logger.info("this plan cannot be saved: %s", error)
        return None
    return digest.hexdigest()


def _files(directory: Path, place: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            name = f"{place}/{entry.name}"
            if entry.is_dir():
                yield from _files(Path(entry.path), name)
            else:
                yield name, entry.stat()


def _ends_there(inventory: Inventory) -> bool:
    """Whether the last record exists, and the log still ends after it."""
    log = inventory.log
    at = log.last_physical_offset if log.records else log.start
    try:
        segments = SegmentSet.load(
            inventory.root / "commitlog", inventory.segment_bytes, read_only=True
        )
    except StoreError:
        return False
    with closing(segments):
        records = 0
        for step in walk(segments, at, parser=FastParser()):
            match step:
                case Run():
                    records += step.record_count
                case End():
                    there = (records, step.next_offset, step.reason)
                    return there == (min(1, log.records), log.end, log.end_reason)
        return False


def _document(inventory: Inventory) -> dict[str, Any]:
    log, lives = inventory.log, inventory.generations
    return {
        "version": _VERSION,
        "segment_bytes": inventory.segment_bytes,
        "segment_count": inventory.segment_count,
        "layout": asdict(inventory.layout),
        "log": {
            name: getattr(log, name)
            for name in ("start", "end", "records", "units", "last_physical_offset", "end_reason")
        },
        "time_falls": log.times.found,
        "last_store_time_ms": inventory.last_store_time_ms,
        "was_closed": inventory.was_closed,
        "topics": inventory.topics,
        "live_from": lives.live_from,
        "dead_light": lives.dead_light,
        "findings": [
            {**asdict(each), "kind": each.kind.name, "own_remedy": each.remedy.name}
            for each in inventory.findings
        ],
        "queues_in_rocksdb": inventory.queues_in_rocksdb,
        "pops": sorted(inventory.pops),
        "held_back": [list(each) for each in inventory.held_back],
    }


def _inventory(root: Path, document: dict[str, Any]) -> Inventory:
    log = LogSurvey(**document["log"])
    log.times.found = tuple(Fall(*each) for each in document["time_falls"])
    return Inventory(
        root,
        document["segment_bytes"],
        document["segment_count"],
        FileLayout(**document["layout"]),
        log,
        document["last_store_time_ms"],
        document["was_closed"],
        document["topics"],
        Generations(live_from=document["live_from"], dead_light=document["dead_light"]),
        [
            Finding(
                **{**each, "kind": Kind[each["kind"]], "own_remedy": Remedy[each["own_remedy"]]}
            )
            for each in document["findings"]
        ],
        read_config_with_marks(root),
        document["queues_in_rocksdb"],
        held_back=tuple(HeldBack(*each) for each in document["held_back"]),
        pops=frozenset(document["pops"]),
    )
