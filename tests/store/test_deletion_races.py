"""A topic is deleted while others are in the middle of something with it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from kvcq.tables.keys import UNITS
from store.consume_queue import Boundary
from store.errors import UnknownTopicError
from store.message import Message
from tests.support.rebuild import live_engine
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


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
        assert store._repair._thread is None


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


def test_an_offset_stored_during_a_deletion_is_not_the_next_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path / "store") as store:
        store.put([Message("T", b"x")] * 100)
        commit = store.metadata.commit_offsets
        deleter = threading.Thread(target=store.delete_topic, args=("T",))

        def late(group: str, offsets: Iterable[tuple[str, int, int]]) -> None:
            deleter.start()
            deleter.join(0.2)  # all the time it needs, were nothing in its way
            commit(group, offsets)

        monkeypatch.setattr(store.metadata, "commit_offsets", late)
        store.commit_offsets("g", [("T", 0, 100)])
        deleter.join()
        store.put([Message("T", b"x")])
        assert store.committed_offsets("g", [("T", 0)]) == [None]
