"""What MetadataStore does beyond its contract: syncs that share a flush, rows of another form."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq.engine.protocol import KvBatch
from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import metadata_profile
from kvcq.errors import CorruptValueError
from kvcq.metadata_store import MetadataStore
from store.metadata import DeleteMark, TopicConfig
from tests.support.memory_engine import MemoryEngine

if TYPE_CHECKING:
    from pathlib import Path


def topic(name: str) -> TopicConfig:
    return TopicConfig(name, 8, 1_700_000_000_000, 4096)


def test_what_is_written_without_sync_counts_after_sync(tmp_path: Path) -> None:
    engine = RocksEngine.open(tmp_path / "meta", metadata_profile())
    store = MetadataStore(engine)
    store.put_topics([topic("T")], sync=False)
    assert store.topics(["T"]) == [topic("T")]
    store.sync()
    store.sync()
    store.close()
    again = MetadataStore(RocksEngine.open(tmp_path / "meta", metadata_profile()))
    assert again.topics(["T"]) == [topic("T")]
    again.close()


def test_a_sync_waits_for_the_one_that_took_its_rows_along(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = MemoryEngine(("default",))
    store = MetadataStore(engine)
    store.put_topics([topic("T")], sync=False)
    begun, end, done = threading.Event(), threading.Event(), threading.Event()

    def flush() -> None:
        begun.set()
        assert end.wait(30)

    monkeypatch.setattr(engine, "flush", flush)
    first = threading.Thread(target=store.sync)
    first.start()
    assert begun.wait(30)

    def sync() -> None:
        store.sync()
        done.set()

    second = threading.Thread(target=sync)
    second.start()
    assert not done.wait(0.05)
    end.set()
    assert done.wait(30)
    first.join()
    second.join()


def test_a_sync_that_failed_is_not_taken_for_done(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = MemoryEngine(("default",))
    store = MetadataStore(engine)
    store.put_topics([topic("T")], sync=False)

    def fail() -> None:
        raise OSError("no sync")

    monkeypatch.setattr(engine, "flush", fail)
    for _ in range(2):
        with pytest.raises(OSError, match="no sync"):
            store.sync()


def test_a_row_of_another_form_is_corrupt() -> None:
    engine = MemoryEngine(("default",))
    engine.write(KvBatch(puts={"default": [(b"tT", b"\x02rest")]}))
    with pytest.raises(CorruptValueError, match="'T'"):
        MetadataStore(engine).topics(["T"])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["g", "gg", "h"]),
            st.sampled_from(["T", "TT", "U"]),
            st.integers(0, 2),
            st.integers(0, 99),
        ),
        max_size=20,
    ),
    st.sampled_from(["T", "TT", "U"]),
)
def test_offsets_equal_a_plain_table(
    commits: list[tuple[str, str, int, int]], deleted: str
) -> None:
    store = MetadataStore(MemoryEngine(("default",)))
    model: dict[tuple[str, str, int], int] = {}
    for group, name, queue, offset in commits:
        store.commit_offsets(group, [(name, queue, offset)])
        model[(group, name, queue)] = offset
    store.delete_topics([DeleteMark(deleted, 0, 1)])
    model = {key: offset for key, offset in model.items() if key[1] != deleted}
    for group in ("g", "gg", "h"):
        expected = sorted(
            (name, queue, offset) for (g, name, queue), offset in model.items() if g == group
        )
        assert sorted(store.list_committed(group, None, 100)) == expected
