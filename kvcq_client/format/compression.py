"""Decompresses bodies. RocketMQ's clients compress them from 4 KiB on.

| bits of the sys flag | meaning                                                 |
|----------------------|---------------------------------------------------------|
| 0x001                | the body is compressed                                  |
| 0x700                | how: 0 and 0x300 zlib or gzip, 0x100 an LZ4 frame,      |
|                      | 0x200 zstd                                              |

The store keeps a compressed body as it is, and its CRC covers the compressed bytes.
Source: RocketMQ 5, MessageSysFlag and CompressionType.
"""

from __future__ import annotations

import sys
import zlib
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

COMPRESSED = 0x1
_KIND_BITS = 0x700
#: Larger bodies are rejected, since a few KiB can expand to fill the memory.
MAX_BODY_BYTES = 64 << 20


class BodyError(ValueError):
    """The body cannot be decompressed, or exceeds MAX_BODY_BYTES."""


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


def decompress(body: bytes, sys_flag: int) -> bytes:
    """Decompress the body; returns `body` itself if the flag says that it is not compressed.

    Raises BodyError, naming the method.
    """
    if not sys_flag & COMPRESSED:
        return body
    kind = _KINDS.get(sys_flag & _KIND_BITS)
    if kind is None:
        raise BodyError(f"compressed by an unknown method ({sys_flag & _KIND_BITS:#x})")
    name, begin = kind
    decompressor = begin()
    try:
        # One byte more than allowed shows whether there is more.
        plain = decompressor.decompress(body, MAX_BODY_BYTES + 1)
    except Exception as error:
        # Each library has its own errors, not all of them public.
        raise BodyError(f"does not decompress ({name}): {error}") from error
    if len(plain) > MAX_BODY_BYTES:
        raise BodyError(f"decompresses ({name}) to more than {MAX_BODY_BYTES:,} bytes")
    if not decompressor.eof:
        raise BodyError(f"does not decompress ({name}): it ends too early")
    return plain


# Imported on demand: most stores have no compressed bodies.


#: For zlib to tell by the first bytes whether it is zlib or gzip: some clients of RocketMQ 5 send
#: the one and some the other, under one name.
_ZLIB_OR_GZIP = zlib.MAX_WBITS | 32


def _zlib() -> _Decompressor:
    return zlib.decompressobj(_ZLIB_OR_GZIP)


def _lz4() -> _Decompressor:
    from lz4.frame import LZ4FrameDecompressor

    decompressor: _Decompressor = LZ4FrameDecompressor()
    return decompressor


def _zstd() -> _Decompressor:
    if sys.version_info >= (3, 14):
        from compression.zstd import ZstdDecompressor
    else:
        from backports.zstd import ZstdDecompressor
    return ZstdDecompressor()


_KINDS: dict[int, tuple[str, Callable[[], _Decompressor]]] = {
    0x000: ("zlib", _zlib),
    0x100: ("lz4", _lz4),
    0x200: ("zstd", _zstd),
    0x300: ("zlib", _zlib),
}
