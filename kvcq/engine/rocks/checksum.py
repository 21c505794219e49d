"""CRC-32C, the checksum of RocksDB's files and of our own."""

from __future__ import annotations

import crcmod.predefined
import google_crc32c

#: `portable(data)`, or `portable(more, before)`: compiled where there was a compiler when it was
#: installed, 0.5 GB/s; plain Python otherwise.
portable = crcmod.predefined.mkPredefinedCrcFun("crc-32c")

#: Whether the processor's own instruction can be used: several GB/s.
HAS_INSTRUCTION = google_crc32c.implementation == "c"


def crc32c(data: bytes, before: int = 0) -> int:
    """The CRC of `data`, or, with the result `before` for earlier data, of both together.

    Holds the GIL.
    """
    crc: int = google_crc32c.extend(before, data) if HAS_INSTRUCTION else portable(data, before)
    return crc
