"""The kept document of a run: compressed JSON, with each round of each piece of work."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

REPORT = Path(__file__).parents[2] / "docs/peers.json.gz"
#: Of runs before that one.
EARLIER = "peers-*.json.gz"


def write(document: dict[str, Any], path: Path) -> None:
    text = json.dumps(document, separators=(",", ":"))
    # Without the time, so that the same run is the same file.
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def read(path: Path = REPORT) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return document


def kept() -> list[dict[str, Any]]:
    """The run that the tables are of, where there is one, and those before it."""
    paths = sorted(REPORT.parent.glob(EARLIER))
    return [read(path) for path in (REPORT, *paths) if path.exists()]
