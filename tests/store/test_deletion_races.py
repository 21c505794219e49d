"""A topic is deleted while others are in the middle of something with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq.tables.keys import UNITS
from store.consume_queue import Boundary
from store.errors import OffsetOutOfRangeError, UnknownTopicError
from store.message import Message
from tests.support.rebuild import live_engine
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from store.state import Entry

LIGHT = "%LMQ%a"


def test_a_search_that_a_deletion_overtakes_finds_no_topic_and_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path / "store") as store:
        store.put([Message("T", b"x")] * 100)
        engine = live_engine(store)
        get = engine.get
        first = iter([None])

        def deleting(family: str, key: bytes) -> bytes | None:
            if family == UNITS and next(first, 0) is None:
                store.delete_topic("T")
            return get(family, key)

        monkeypatch.setattr(engine, "get", deleting)
        with pytest.raises(UnknownTopicError):
            store.search_time("T", 0, 5, Boundary.LOWER)
        assert store._services.repair._thread is None


def test_a_search_that_a_new_topic_overtakes_searches_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path / "store") as store:
        store.put([Message("T", b"x")] * 100)
        engine = live_engine(store)
        get = engine.get
        first = iter([None])

        def deleting(family: str, key: bytes) -> bytes | None:
            if family == UNITS and next(first, 0) is None:
                store.delete_topic("T")
                store.put([Message("T", b"x")] * 3)
            return get(family, key)

        monkeypatch.setattr(engine, "get", deleting)
        assert store.search_time("T", 0, 1 << 60, Boundary.LOWER) == 3


@pytest.mark.parametrize("name", ["T", LIGHT])
@pytest.mark.parametrize("is_made_again", [False, True])
def test_an_offset_stored_during_a_deletion_is_not_the_next_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_made_again: bool
) -> None:
    with open_small(tmp_path / "store") as store:
        store.put([Message("T", b"x", light_queues=(LIGHT,))] * 100)
        decide = store._appends.decide

        def late(decided: Callable[[], Sequence[Entry]]) -> int:
            """Between the look at the queue's bounds and the append lock."""
            monkeypatch.undo()
            store.delete_topic(name)
            if is_made_again:
                store.put([Message("T", b"x", light_queues=(LIGHT,))])
            return decide(decided)

        monkeypatch.setattr(store._appends, "decide", late)
        with pytest.raises(OffsetOutOfRangeError if is_made_again else UnknownTopicError):
            store.commit_offsets("g", [(name, 0, 100)])
        store.put([Message("T", b"x", light_queues=(LIGHT,))])
        assert store.committed_offsets("g", [(name, 0)]) == [None]
        assert store.list_groups(None, 9) == []
