"""Measures how full the disk is, and decides what follows from it."""

from __future__ import annotations

import enum
import errno
import logging
import os
from typing import TYPE_CHECKING

from store.errors import DiskFullError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store.config import StoreConfig

logger = logging.getLogger(__name__)


class DiskLevel(enum.IntEnum):
    """What the store does at a given disk usage. The limits are in StoreConfig."""

    NORMAL = 0  # drop expired segments at the set hour
    CLEAN = 1  # above disk_clean_ratio: drop expired segments now
    CLEAN_FORCIBLY = 2  # above disk_pressed_ratio: with reclaim_unexpired, of any age
    FULL = 3  # above disk_full_ratio: and refuse puts


def used_ratio(path: Path) -> float:
    """Share of the file system under `path` that is in use, 0 to 1, as `df` counts it.

    Blocks reserved for root count as neither used nor free. Raises OSError.
    """
    found = os.statvfs(path)
    used = found.f_blocks - found.f_bfree
    entire = used + found.f_bavail
    return used / entire if entire else 1.0


def free_bytes(path: Path) -> int:
    """Bytes that can still be written to the file system under `path`. Raises OSError."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def write_fault(path: Path) -> OSError | None:
    """The error of writing a file in the directory; None if it works. Leaves nothing behind.

    A file system that became read-only after an error does not always report it; only a write shows
    it. Blocks.
    """
    try:
        opened = os.open(path, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError as error:
        # Not every file system has files without a name, and a lack of descriptors is another one.
        return None if error.errno in _TELLS_NOTHING else error
    try:
        os.write(opened, bytes(_PROBE_BYTES))  # more than an inode holds: it takes a block
    except OSError as error:
        return error
    finally:
        os.close(opened)
    return None


_PROBE_BYTES = 4096
_TELLS_NOTHING = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EMFILE, errno.ENFILE})


class DiskGuard:
    """Has the last measured disk usage, and rejects puts above a level.

    Puts are rejected from the first measurement above `disk_full_ratio` until the first at or below
    `disk_pressed_ratio`, so that they do not flap with each dropped segment. Thread:
    `measure` on one thread at a time, the retention job; everything else on any thread.
    """

    def __init__(
        self,
        path: Path,
        config: StoreConfig,
        gauge: Callable[[Path], float] = used_ratio,
        probe: Callable[[Path], OSError | None] = write_fault,
    ) -> None:
        # Constant after construction.
        self._path = path
        self._config = config
        self._gauge = gauge
        self._probe = probe
        #: Read freely; only `measure` writes them.
        self.ratio = 0.0
        self.free_bytes = 0
        self.level = DiskLevel.NORMAL
        self.refuses_puts = False
        #: Why no file could be written when that was last tried.
        self.fault: OSError | None = None

    def reconfigure(self, config: StoreConfig) -> None:
        """Use these limits from the next measurement on. Thread-safe."""
        self._config = config

    def measure(self) -> DiskLevel:
        """Measure the level. If the disk cannot be measured, logs that and returns the last
        level."""
        self._try_to_write()
        try:
            ratio = self._gauge(self._path)
            self.free_bytes = free_bytes(self._path)
        except OSError:
            logger.exception("cannot tell how full the disk of %s is", self._path)
            return self.level
        config = self._config
        if ratio > config.disk_full_ratio:
            level = DiskLevel.FULL
        elif ratio > config.disk_pressed_ratio:
            level = DiskLevel.CLEAN_FORCIBLY
        elif ratio > config.disk_clean_ratio:
            level = DiskLevel.CLEAN
        else:
            level = DiskLevel.NORMAL
        if level is not self.level:
            log = logger.warning if level > self.level else logger.info
            log("%s: disk %.1f %% used, level %s", self._path, ratio * 100, level.name)
            if level is DiskLevel.FULL and not config.reclaim_unexpired:
                log(
                    "%s: puts are refused; messages that have not expired stay: make room, set "
                    "store.reserved_hours lower, or store.reclaim_unexpired=true",
                    self._path,
                )
        self.ratio = ratio
        self.level = level
        if level is DiskLevel.FULL:
            self.refuses_puts = True
        elif level < DiskLevel.CLEAN_FORCIBLY:
            self.refuses_puts = False
        return level

    def _try_to_write(self) -> None:
        before, self.fault = self.fault, self._probe(self._path)
        if self.fault is not None and before is None:
            logger.error("%s: no file can be written: %s", self._path, self.fault)
        elif self.fault is None and before is not None:
            logger.info("%s: files can be written again", self._path)

    def check_put(self) -> None:
        """Raises DiskFullError while puts are rejected. Otherwise only reads one attribute."""
        if self.refuses_puts:
            config = self._config
            raise DiskFullError(
                f"{self._path}: disk {self.ratio:.1%} used; puts are refused above "
                f"{config.disk_full_ratio:.1%}, until it is {config.disk_pressed_ratio:.1%}"
            )
