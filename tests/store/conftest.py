"""A small store on a clock that stands still; rebuilt from its log it is the same at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.checked import checked
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import differences
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store.message_store import MessageStore


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock, damaged: bool) -> Iterator[MessageStore]:
    with checked(open_small(tmp_path / "store", clock), damaged=damaged) as opened:
        yield opened
        assert differences(opened) == []
