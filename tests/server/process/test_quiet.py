"""server/process/quiet.py: what is on its way is waited for, but not for ever."""

from __future__ import annotations

from itertools import chain, count, repeat
from typing import TYPE_CHECKING

from server.process import quiet, until_quiet

if TYPE_CHECKING:
    import pytest


async def test_it_waits_as_long_as_something_comes() -> None:
    seen = chain(range(5), repeat(5))
    await until_quiet(lambda: next(seen))
    assert next(seen) == 5


async def test_it_ends_where_there_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "_MOST_S", 0.03)
    seen = count()
    await until_quiet(lambda: next(seen))
    assert next(seen) < 10
