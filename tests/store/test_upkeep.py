"""store/upkeep/upkeep.py and checkpoints.py: what is done on the way, and when it goes wrong."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from store.errors import FlushError, StoreFailedError
from store.message import Message
from store.upkeep.services import Services
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path


def test_units_do_not_expire_early_while_a_store_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line that the filter drops below moves with the clock, and is set back here alone."""
    store = open_small(tmp_path / "store")
    rounds: list[int] = []
    maintain: Any = store.queues.maintain

    def noted() -> int:
        rounds.append(1)
        found: int = maintain()
        return found

    monkeypatch.setattr(store.queues, "maintain", noted)
    store.maintain()
    store._appends.fail(FlushError("planted"))
    store.maintain()
    assert len(rounds) == 2
    with pytest.raises(StoreFailedError):
        store.put([Message("T", b"x")])
    with suppress(StoreFailedError):
        store.close()


def test_an_interrupted_close_lets_go_of_the_queues_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_small(tmp_path / "store")
    placed = store.put([Message("T", b"x")]).placed[0]
    stop = Services.stop

    def interrupted(self: Services) -> None:
        stop(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(Services, "stop", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.close()
    monkeypatch.undo()
    with open_small(tmp_path / "store") as again:
        assert again.put([Message("T", b"y")]).placed[0].queue_offset == placed.queue_offset + 1
