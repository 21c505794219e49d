"""Message bodies that identify themselves, generated from the seed, so that none has to be stored.

| at | size | type  | field                                                            |
|---:|-----:|-------|------------------------------------------------------------------|
|  0 |    4 | u32   | stream: number of the queue that it was written to               |
|  4 |    8 | u64   | number of the message in its stream, from 0                       |
| 12 |    8 | u64   | mark: seed, stream and number, mixed                              |
| 20 |      | bytes | a piece of a random pool, chosen by the mark                      |

Little-endian. A body that was cut, swapped with another one, or written by another run does not
match.
"""

from __future__ import annotations

import random
import struct

from kvcq_bench.errors import WrongBodyError

HEADER = struct.Struct("<IQQ")
assert HEADER.size == 20

#: Least size of a body.
MIN_BODY_BYTES = HEADER.size
_POOL_STARTS = 1 << 16
_U64 = (1 << 64) - 1


def mix(seed: int, stream: int, number: int) -> int:
    """A 64-bit hash of the three. Source: the finaliser of splitmix64."""
    value = (seed * 0x9E3779B97F4A7C15 + stream * 0xD1B54A32D192ED03 + number + 1) & _U64
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _U64
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _U64
    return value ^ value >> 31


class BodyMaker:
    """Creates and checks the bodies of one run, up to `max_bytes` each. Thread: any."""

    def __init__(self, seed: int, max_bytes: int) -> None:
        self._seed = seed
        self._pool = random.Random(seed).randbytes(_POOL_STARTS + max_bytes)

    def make(self, stream: int, number: int, size: int) -> bytes:
        """The body of `size` bytes, at least 20."""
        mark = mix(self._seed, stream, number)
        start = mark & (_POOL_STARTS - 1)
        filler = self._pool[start : start + size - MIN_BODY_BYTES]
        return HEADER.pack(stream, number, mark) + filler

    def check(self, body: bytes) -> tuple[int, int]:
        """Stream and number. Raises WrongBodyError."""
        if len(body) < MIN_BODY_BYTES:
            raise WrongBodyError(f"a body of {len(body)} bytes is not from a run")
        stream, number, mark = HEADER.unpack_from(body)
        if mark != mix(self._seed, stream, number):
            raise WrongBodyError(f"stream {stream} number {number}: the mark is not of this run")
        start = mark & (_POOL_STARTS - 1)
        if body[MIN_BODY_BYTES:] != self._pool[start : start + len(body) - MIN_BODY_BYTES]:
            raise WrongBodyError(f"stream {stream} number {number}: other bytes than were sent")
        return stream, number
