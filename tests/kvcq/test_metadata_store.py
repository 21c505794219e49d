"""Topics, groups and offsets: durable, paged, and gone with their topic."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq.engine.memory import MemoryEngine
from kvcq.engine.protocol import KvBatch
from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import metadata_profile
from kvcq.errors import CorruptValueError
from kvcq.metadata_store import MetadataStore
from store.consume_queue import LastUnit
from store.metadata import DeleteMark, TopicConfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["memory", "rocks"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MetadataStore]:
    engine = (
        MemoryEngine(("default",))
        if request.param == "memory"
        else RocksEngine.open(tmp_path / "meta", metadata_profile())
    )
    opened = MetadataStore(engine)
    yield opened
    opened.close()


def topic(name: str) -> TopicConfig:
    return TopicConfig(name, 8, 1_700_000_000_000, 4096)


def test_topics_read_back_and_are_listed_by_prefix_in_pages(store: MetadataStore) -> None:
    names = ["b", "a", "ab", "abc", "%RETRY%g"]
    store.put_topics(map(topic, names))
    assert store.topics(["a", "zz", "ab"]) == [topic("a"), None, topic("ab")]
    assert store.list_topics("", None, 100) == [topic(name) for name in sorted(names)]
    assert store.list_topics("a", None, 2) == [topic("a"), topic("ab")]
    assert store.list_topics("a", "ab", 2) == [topic("abc")]


def test_deleting_a_topic_takes_offsets_of_every_group_and_leaves_the_mark(
    store: MetadataStore,
) -> None:
    store.put_topics([topic("T"), topic("TT")])
    for group in ("g", "gg"):
        store.commit_offsets(group, [("T", 0, 5), ("T", 1, 6), ("TT", 0, 7)])
    store.delete_topic(DeleteMark("T", 900, 1))
    assert store.topics(["T", "TT"]) == [None, topic("TT")]
    for group in ("g", "gg"):
        assert store.committed_offsets(group, [("T", 0), ("T", 1), ("TT", 0)]) == [None, None, 7]
        assert store.list_committed(group, None, 10) == [("TT", 0, 7)]
    assert store.delete_marks() == [DeleteMark("T", 900, 1)]
    store.drop_marks([1])
    assert store.delete_marks() == []


def test_last_units_are_one_for_each_queue_and_go_with_their_topic(store: MetadataStore) -> None:
    rest = [LastUnit("TT", 0, 7, 70), LastUnit("U", 0, 9, 90)]
    store.put_last_units([LastUnit("T", 0, 5, 50), LastUnit("T", 1 << 30, 6, 60), *rest])
    store.put_last_units([LastUnit("T", 0, 8, 80)])
    assert {unit for page in store.last_units() for unit in page} == {
        LastUnit("T", 0, 8, 80),
        LastUnit("T", 1 << 30, 6, 60),
        *rest,
    }
    store.delete_topic(DeleteMark("T", 900, 1))
    assert sorted(unit for page in store.last_units() for unit in page) == rest


def test_last_units_are_listed_over_many_pages(store: MetadataStore) -> None:
    units = [LastUnit("T", number, number, number) for number in range(2500)]
    store.put_last_units(units)
    pages = list(store.last_units())
    assert len(pages) > 1
    assert [unit for page in pages for unit in page] == units


def test_a_group_goes_alone(store: MetadataStore) -> None:
    for group in ("a", "ab", "b"):
        store.commit_offsets(group, [("T", n, n) for n in range(3)])
    store.delete_group("a")
    assert store.list_groups(None, 10) == ["ab", "b"]
    assert store.list_groups("ab", 10) == ["b"]
    assert store.committed_offsets("a", [("T", 0)]) == [None]
    assert store.committed_offsets("ab", [("T", 2)]) == [2]
    store.delete_topic(DeleteMark("T", 0, 1))
    assert store.list_committed("ab", None, 10) == []


def test_committed_offsets_are_paged_by_queue(store: MetadataStore) -> None:
    committed = [(name, queue, 10 * queue) for name in ("A", "B") for queue in range(5)]
    store.commit_offsets("g", committed)
    found: list[tuple[str, int, int]] = []
    after: tuple[str, int] | None = None
    while page := store.list_committed("g", after, 3):
        found += page
        after = page[-1][:2]
    assert found == committed


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
    store.delete_topic(DeleteMark(deleted, 0, 1))
    model = {key: offset for key, offset in model.items() if key[1] != deleted}
    for group in ("g", "gg", "h"):
        expected = sorted(
            (name, queue, offset) for (g, name, queue), offset in model.items() if g == group
        )
        assert sorted(store.list_committed(group, None, 100)) == expected


def test_small_values_are_kept_by_name(store: MetadataStore) -> None:
    assert store.get_state("x") is None
    store.put_state("x", b"1")
    store.put_state("xy", b"2")
    assert store.get_state("x") == b"1"
