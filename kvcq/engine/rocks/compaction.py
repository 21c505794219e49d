"""Splits a manual compaction into pieces; the database may be reopened between two."""

from __future__ import annotations

import re
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from rocksdict import BottommostLevelCompaction, CompactOptions

if TYPE_CHECKING:
    from rocksdict import Rdict

#: A piece takes about this many bytes of the last level.
PIECE_BYTES = 64 << 20


def pieces(
    table: Rdict, start: bytes | None, end: bytes | None
) -> list[tuple[bytes | None, bytes | None]]:
    """Split a range at the starts of files of the last level, into pieces of about
    `PIECE_BYTES`."""
    # `live_files` names the files of all families; this property lists one family's, by number.
    own = set(re.findall(r"^ (\d+):", table.property_value("rocksdb.sstables") or "", re.MULTILINE))
    files = [file for file in table.live_files() if Path(file["name"]).stem.lstrip("0") in own]
    last = max((file["level"] for file in files), default=0)
    cuts: list[bytes] = []
    piece = 0
    for file in sorted(files, key=itemgetter("start_key")):
        key = file["start_key"]
        if file["level"] != last or (start is not None and key <= start):
            continue
        if end is not None and key >= end:
            break
        if piece >= PIECE_BYTES:
            cuts.append(key)
            piece = 0
        piece += file["size"]
    return list(zip([start, *cuts], [*cuts, end], strict=True))


def compact_options() -> CompactOptions:
    """Options for one piece."""
    options = CompactOptions()
    # Automatic compactions continue meanwhile; waiting for them would make a piece longer.
    options.set_exclusive_manual_compaction(False)
    # The last level too, where most expired and deleted rows are; each file once.
    options.set_bottommost_level_compaction(BottommostLevelCompaction.force_optimized())
    return options
