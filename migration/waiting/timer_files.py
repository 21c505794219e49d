"""The files of a broker's timer: how far it is, and what stands in its wheel.

`config/timercheck`, 4096 bytes, the first of them big-endian:

| at | size | type | field                                                            |
|---:|-----:|------|------------------------------------------------------------------|
|  0 |    8 | i64  | ms since 1970: what was due before has been delivered            |
|  8 |    8 | i64  | position in the timer's log up to which it is flushed            |
| 16 |    8 | i64  | queue offset in rmq_sys_wheel_timer: those below are in the wheel|
| 24 |    8 | i64  | the same, of the master                                          |

`timerlog/<20 digits>`, records of 52 bytes, of the wheel; a file ends with a shorter blank:

| at | size | type | field                                                            |
|---:|-----:|------|------------------------------------------------------------------|
|  0 |    4 | i32  | 52                                                               |
|  4 |    8 | i64  | position of the one before in its slot                           |
| 12 |    4 | i32  | 1: a message; 2: it is put again then; 4: it recalls one         |
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
    """What the broker's timer files say about waiting messages."""

    #: Queue offset from which on messages are not in the wheel yet.
    next_offset: int
    #: Entries in the wheel: physical offset of a message, and the time of its slot, ms.
    slots: dict[int, int] = field(default_factory=dict)

    def may_wait(self, queue_offset: int, physical_offset: int) -> bool:
        """Whether these files leave open that the message was not delivered."""
        return queue_offset >= self.next_offset or physical_offset in self.slots


def read_timer_files(root: Path) -> TimerFiles | None:
    """None without `config/timercheck`: the broker had no timer, or its files are lost.

    Raises OSError. Memory: an entry for each message in the wheel.
    """
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
    # A broker that starts takes the lower one of both.
    return TimerFiles(min(next_offset, master_offset), slots)


def _records(directory: Path) -> Iterator[tuple[int, int]]:
    """Yield physical offset and slot of each, in the order written."""
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
    """Make a broker's timer begin with the message at that queue offset, with an empty wheel,
    durably.

    Removes the wheel first, since its messages may have been delivered here. Repeatable.
    """
    for path in (root / "timerwheel", *sorted((root / "timerlog").glob("*"))):
        path.unlink(missing_ok=True)
    fsync_directory(root)
    second_ms = now_ms - now_ms % 1000
    head = _CHECK.pack(second_ms, 0, next_offset, next_offset, 0, now_ms, 1)
    write_file(root / "config" / _CHECK_NAME, head.ljust(_CHECK_BYTES, b"\0"))
