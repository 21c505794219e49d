"""What is acknowledged and what may be seen, in both modes."""

from __future__ import annotations

import pytest

from store.config import FlushMode
from store.errors import FlushError
from store.log.acknowledgement import Acknowledgement
from store.log.watermark import Watermark


def made(mode: FlushMode) -> tuple[Acknowledgement, Watermark, Watermark]:
    """Appended up to 100."""
    flushed, dispatched = Watermark("flushed", 0), Watermark("dispatched", 0)
    return Acknowledgement(mode, lambda: 100, flushed, dispatched), flushed, dispatched


def test_async_acknowledges_what_is_appended_and_shows_it() -> None:
    found, _, dispatched = made(FlushMode.ASYNC)
    assert (found.at_append, found.limit(), found.lag(), found.confirmed) == (True, 100, 100, 0)
    told: list[BaseException | None] = []
    found.when_acknowledged(100, told.append)
    assert told == [None]
    assert found.is_acknowledged(100)
    assert found.wait(100, 0)
    dispatched.advance(100)
    assert found.lag() == 0


def test_sync_acknowledges_what_is_confirmed_and_shows_nothing_else() -> None:
    found, flushed, dispatched = made(FlushMode.SYNC)
    assert (found.at_append, found.limit(), found.lag()) == (False, 0, 0)
    told: list[BaseException | None] = []
    found.when_acknowledged(60, told.append)
    flushed.advance(60)
    assert (found.confirmed, found.limit(), found.lag()) == (60, 60, 60)
    assert not found.is_acknowledged(60)
    assert not found.wait(60, 0)
    assert told == []
    dispatched.advance(60)
    assert told == [None]
    assert found.is_acknowledged(60)
    assert found.wait(60, 0)


def test_a_put_that_will_never_be_acknowledged_is_told_so() -> None:
    found, _, dispatched = made(FlushMode.SYNC)
    told: list[BaseException | None] = []
    found.when_acknowledged(60, told.append)
    dispatched.fail(FlushError("planted"))
    assert isinstance(told[0], FlushError)
    with pytest.raises(FlushError):
        found.wait(60, 0)
