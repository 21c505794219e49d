"""A file system of its own that can lose power: ext4 on a loop device.

`lose_power` stops the file system at once by ext4's shutdown request, without writing the journal
or any dirty page, as xfstests does it. What was not fsynced, or written back before, is gone; the
next mount replays the journal as after a real power loss. Needs root and loop devices.
Source of the request: Linux, fs/ext4/ext4.h, EXT4_IOC_SHUTDOWN.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from pathlib import Path
    from threading import Event

_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32)
_NO_LOG_FLUSH = 2
_WRITE_AND_WAIT = 1 | 2 | 4  # SYNC_FILE_RANGE_WAIT_BEFORE, _WRITE, _WAIT_AFTER
_PAGE = 4096


class LoopDisk:
    """Made and mounted at once; `close` unmounts it and removes its image."""

    def __init__(self, image: Path, mount_point: Path, size_bytes: int) -> None:
        self.image = image
        self.mount_point = mount_point
        self.root = mount_point / "data"
        self._is_mounted = False
        with image.open("wb") as file:
            file.truncate(size_bytes)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
        mount_point.mkdir(exist_ok=True)
        self.mount()

    def mount(self) -> None:
        """Mount it, replaying its journal."""
        subprocess.run(["mount", "-o", "loop", str(self.image), str(self.mount_point)], check=True)
        self._is_mounted = True

    def unmount(self) -> None:
        """Repeatable. Nobody may have a file of it open."""
        if self._is_mounted:
            subprocess.run(["umount", str(self.mount_point)], check=True)
            self._is_mounted = False

    def lose_power(self, chance: random.Random, lost: Event) -> None:
        """Nothing reaches the disk any more. Some dirty pages may have, by chance, before.

        Sets `lost` first: an fsync that is under way just then may end well without having
        written all, which no machine without power lives to tell.
        """
        if chance.random() < 0.7:
            self._write_back_some(chance)
        directory = os.open(self.mount_point, os.O_RDONLY)
        try:
            lost.set()
            fcntl.ioctl(directory, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(directory)

    def _write_back_some(self, chance: random.Random) -> None:
        """Write pages here and there, as the kernel may at any time, in no order.

        With them the journal, in half of the cases: else blocks that were only reserved stay so,
        and the pages are lost all the same.
        """
        # Unlike rglob it passes over directories that go meanwhile.
        files = [
            os.path.join(directory, name)  # noqa: PTH118 - as os.walk has it
            for directory, _, names in os.walk(self.root)
            for name in names
        ]
        libc = ctypes.CDLL(None, use_errno=True)
        for path in chance.sample(files, min(len(files), chance.randrange(1, 6))):
            try:
                descriptor = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                continue  # dropped since
            try:
                pages = max(1, os.fstat(descriptor).st_size // _PAGE)
                for _ in range(chance.randrange(1, 20)):
                    first, count = chance.randrange(pages), chance.choice((1, 1, 2, 16))
                    libc.sync_file_range(
                        descriptor,
                        ctypes.c_int64(first * _PAGE),
                        ctypes.c_int64(count * _PAGE),
                        _WRITE_AND_WAIT,
                    )
            finally:
                os.close(descriptor)
        if chance.random() < 0.5:
            other = self.mount_point / "other"
            other.write_bytes(b"x")
            descriptor = os.open(other, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def close(self) -> None:
        self.unmount()
        self.image.unlink(missing_ok=True)
        if self.mount_point.exists():
            self.mount_point.rmdir()


def can_lose_power() -> bool:
    """Whether this user may mount loop devices here."""
    return os.geteuid() == 0 and os.path.exists("/dev/loop-control")  # noqa: PTH110
