"""A log whose dispatch is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.dispatching import Harness

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path / "log")
    yield made
    made.close()
