"""Segments go, and then the process: what only the queues knew must have been durable."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from store.message import Message
from tests.support.fake_clock import FakeClock
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from store.message_store import MessageStore


def fill(store: MessageStore) -> None:
    """Queue A in the first of several segments, and nowhere else; all of the log is durable."""
    store.put([Message("A", b"x")] * 3)
    for _ in range(200):
        store.put([Message("B", b"x" * 1000)])
    end = store.log.appended_offset
    store._services.flush.request(end)
    assert store._appends.flushed.wait_for(end, 30)


def test_no_segment_goes_before_what_was_derived_from_it_is_durable(tmp_path: Path) -> None:
    root, clock = tmp_path / "store", FakeClock()
    with open_small(root, clock) as store:
        fill(store)
        clock.advance(100 * 3600)
        assert store._services.retention.run_once(now=True) == 0
        shutil.copytree(root, tmp_path / "killed")
    with open_small(tmp_path / "killed", clock) as store:
        # Replayed, which is not durable either.
        assert store._services.retention.run_once(now=True) == 0
        store.flush()
        assert store._services.retention.run_once(now=True) > 0


def test_offsets_go_on_when_the_process_dies_as_a_segment_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, clock = tmp_path / "store", FakeClock()
    with open_small(root, clock) as store:
        fill(store)
        store.flush()
        clock.advance(100 * 3600)
        told = store._services.retention._on_dropped

        def killed(start: int) -> None:
            shutil.copytree(root, tmp_path / "killed")
            told(start)

        monkeypatch.setattr(store._services.retention, "_on_dropped", killed)
        assert store._services.retention.run_once(now=True) > 0
    with open_small(tmp_path / "killed", clock) as store:
        assert store.bounds([("A", 0)]) == [(3, 3)]
        assert store.put([Message("A", b"y")]).placed[0].queue_offset == 3
