"""Stores that are kept packed beside the tests."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def unpack(archive: Path, into: Path) -> None:
    """Python has the filter from 3.11.4 on, and warns where none is named from 3.12 on."""
    with tarfile.open(archive) as packed:
        if hasattr(tarfile, "data_filter"):
            packed.extraction_filter = tarfile.data_filter
        packed.extractall(into)
