"""A run's document on disk: JSON in which samples and points are columns, also compressed.

A sample is a row of some thirty numbers. By columns their names stand once, and compress to a
tenth of what rows take.
"""

from __future__ import annotations

import gzip
import json
import zlib
from typing import TYPE_CHECKING, Any

from kvcq_bench.errors import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

#: Of the documents; others are refused.
FORMAT = 2
_IN_COLUMNS = ("samples", "points")

Row = dict[str, float]
Columns = dict[str, list[float | None]]


def write_report(document: Mapping[str, Any], path: Path) -> None:
    """Its directory is made where it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {**document, **{name: _columns(document[name]) for name in _IN_COLUMNS}}
    path.write_text(json.dumps(kept, separators=(",", ":")), encoding="utf-8")


def read_report(path: Path) -> dict[str, Any]:
    """A document that `write_report` wrote, or that compressed with gzip. Raises ScenarioError."""
    document = read_json(path)
    if not is_report(document):
        raise ScenarioError(f"{path} is no report of this version")
    return {**document, **{name: _rows(document[name]) for name in _IN_COLUMNS}}


def is_report(document: Mapping[str, Any]) -> bool:
    return document.get("format") == FORMAT


def read_json(path: Path) -> dict[str, Any]:
    """An object of a `.json` or `.json.gz` file. Raises ScenarioError."""
    try:
        data = path.read_bytes()
        document = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise ScenarioError(f"{path} cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise ScenarioError(f"{path} is no report of this version")
    return document


def _columns(rows: Sequence[Row]) -> Columns:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _rows(columns: Columns) -> list[Row]:
    named = [
        [(name, value) for value in values] for name, values in columns.items()
    ]  # of each row, all that any row has
    return [
        {name: value for name, value in row if value is not None}
        for row in zip(*named, strict=True)
    ]
