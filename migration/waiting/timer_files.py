"""The files of a broker's timer: its position, and the content of its wheel.

`config/timercheck`, 4096 bytes, the first of them big-endian:

| at | size | type | field                                                            |
|---:|-----:|------|------------------------------------------------------------------|
|  0 |    8 | i64  | ms since 1970: messages due before have been delivered           |
|  8 |    8 | i64  | position in the timer's log up to which it is flushed            |
| 16 |    8 | i64  | queue offset in rmq_sys_wheel_timer: those below are in the wheel|
| 24 |    8 | i64  | the same, of the master                                          |

`timerlog/<20 digits>`, records of 52 bytes, of the wheel; a file ends with a shorter blank:

| at | size | type | field                                                            |
|---:|-----:|------|------------------------------------------------------------------|
|  0 |    4 | i32  | 52                                                               |
|  4 |    8 | i64  | position of the previous record of its slot                      |
| 12 |    4 | i32  | 1: a message; 2: put again at that time; 4: a recall             |
| 16 |    8 | i64  | ms since 1970 at which it was written                            |
| 24 |    4 | i32  | ms from then to its slot                                         |
| 28 |    8 | i64  | physical offset of the message                                   |

Source: RocketMQ 5.5, TimerCheckpoint, TimerLog.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from store.base import fsync_directory, write_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CHECK_NAME = "timercheck"
_CHECK_BYTES = 4096
_CHECK = struct.Struct(">qqqqqqq")
_RECORD = struct.Struct(">iqiqiqiiq")
assert _RECORD.size == 52
_READ_TOGETHER = 20_000 * _RECORD.size


@dataclass(frozen=True)
class TimerFiles:
    """The content of the broker's timer files."""

    #: Queue offset from which on messages are not in the wheel yet.
    next_offset: int
    #: Entries in the wheel: physical offset of a message to the time of its slot, ms since 1970.
    slots: dict[int, int] = field(default_factory=dict)

    def may_wait(self, queue_offset: int, physical_offset: int) -> bool:
        """Whether the message may still wait, according to these files."""
        return queue_offset >= self.next_offset or physical_offset in self.slots


def read_timer_files(root: Path) -> TimerFiles | None:
    """Read the timer files. None without `config/timercheck`: the broker had no timer, or its files
    are lost. Raises OSError. Memory: an entry for each message in the wheel."""
    try:
        check = (root / "config" / _CHECK_NAME).read_bytes()
    except FileNotFoundError:
        return None
    if len(check) < _CHECK.size:
        return None
    read_ms, _, next_offset, master_offset, *_ = _CHECK.unpack_from(check)
    slots = {
        physical_offset: slot_ms
        for physical_offset, slot_ms in _records(root / "timerlog")
        if slot_ms >= read_ms
    }
    # The lower of both, as a broker does when it starts.
    return TimerFiles(min(next_offset, master_offset), slots)


def _records(directory: Path) -> Iterator[tuple[int, int]]:
    """Yield physical offset and slot time of each record, in the order written."""
    paths = sorted(directory.iterdir()) if directory.is_dir() else []
    for path in paths:
        with path.open("rb") as file:
            while data := file.read(_READ_TOGETHER):
                whole = len(data) - len(data) % _RECORD.size
                for size, _, _, written_ms, delay_ms, physical, *_ in _RECORD.iter_unpack(
                    data[:whole]
                ):
                    if size != _RECORD.size:
                        break
                    yield physical, written_ms + delay_ms
                else:
                    continue
                break


def write_timer_files(root: Path, next_offset: int, now_ms: int) -> None:
    """Make a broker's timer begin at queue offset `next_offset`, with an empty wheel, durably.

    Removes the wheel first, because its messages may have been delivered by this store. Repeatable.
    """
    for path in (root / "timerwheel", *sorted((root / "timerlog").glob("*"))):
        path.unlink(missing_ok=True)
    fsync_directory(root)
    second_ms = now_ms - now_ms % 1000
    head = _CHECK.pack(second_ms, 0, next_offset, next_offset, 0, now_ms, 1)
    write_file(root / "config" / _CHECK_NAME, head.ljust(_CHECK_BYTES, b"\0"))
