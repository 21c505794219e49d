from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import DERIVED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kvcq"


@pytest.fixture
def engine(path: Path) -> Iterator[RocksEngine]:
    opened = RocksEngine.open(path, DERIVED)
    yield opened
    opened.close()
