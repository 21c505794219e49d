"""What every Metadata promises, run on the tables in memory and in RocksDB alike."""

from __future__ import annotations

import shutil
import struct
from typing import TYPE_CHECKING

import pytest

from kvcq.engine import KvBatch
from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import metadata_profile
from kvcq.metadata_store import META, MetadataStore
from store.consume_queue import LastUnit
from store.metadata import DeleteMark, KeptQueue, LatestHead, Retention, TopicConfig
from tests.support.memory_engine import MemoryEngine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store.metadata import Metadata


def in_rocksdb(directory: Path) -> Metadata:
    return MetadataStore(RocksEngine.open(directory, metadata_profile()))


@pytest.fixture(params=["memory", "RocksDB"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Metadata]:
    opened: Metadata = (
        MetadataStore(MemoryEngine(("default",)))
        if request.param == "memory"
        else in_rocksdb(tmp_path / "meta")
    )
    yield opened
    opened.close()


def topic(name: str) -> TopicConfig:
    return TopicConfig(name, 8, 1_700_000_000_000, 4096)


def test_topics_read_back_and_are_listed_by_prefix_in_pages(store: Metadata) -> None:
    names = ["b", "a", "ab", "abc", "%RETRY%g"]
    store.put_topics(map(topic, names))
    assert store.topics(["a", "zz", "ab"]) == [topic("a"), None, topic("ab")]
    assert store.list_topics("", None, 100) == [topic(name) for name in sorted(names)]
    assert store.list_topics("a", None, 2) == [topic("a"), topic("ab")]
    assert store.list_topics("a", "ab", 2) == [topic("abc")]


def test_topics_that_are_alike_are_put_as_each_by_itself(store: Metadata) -> None:
    names = ["a", "größe", "b"]
    store.put_topics_like(names, topic("any"))
    assert store.topics([*names, "any"]) == [*map(topic, names), None]


def test_what_a_topic_keeps_reads_back(store: Metadata) -> None:
    limited = topic("T")._replace(retention=Retention(1, 2, (1 << 63) - 1, latest=True))
    store.put_topics([limited, topic("U")])
    assert store.topics(["T", "U"]) == [limited, topic("U")]
    assert store.list_topics("", None, 10) == [limited, topic("U")]
    store.put_topics([topic("T")])
    assert store.topics(["T"]) == [topic("T")]


def test_what_was_counted_is_one_for_each_queue_and_goes_with_its_topic(store: Metadata) -> None:
    rest = KeptQueue("TT", 0, 1, 2, 3, 4, 5)
    store.put_kept([KeptQueue("T", 0, 1, 1, 1, 1, 1), KeptQueue("T", 9, 1, 1, 1, 1, 1), rest])
    newer = KeptQueue("T", 0, 1, 1, 7, 8, 9)
    store.put_kept([newer])
    assert (store.kept("T", 0), store.kept("TT", 0), store.kept("T", 1)) == (newer, rest, None)
    store.put_topics([topic("T")])
    store.delete_topics([DeleteMark("T", 900, 1)])
    assert (store.kept("T", 0), store.kept("T", 9), store.kept("TT", 0)) == (None, None, rest)
    store.put_kept([])


def test_what_is_hidden_is_replaced_as_a_whole_and_goes_with_its_topic(store: Metadata) -> None:
    rest = LatestHead("TT", 0, 9, 1)
    store.put_hidden(rest, {3: b"rest"})
    store.put_hidden(LatestHead("T", 1, 5, 2), {0: b"a", 1 << 40: b"b"})
    store.put_hidden(LatestHead("T", 2, 5, 2), {0: b"other"})
    store.put_hidden(LatestHead("T", 1, 7, 3), {2: b"c"})
    assert [store.hidden_bits("T", 1, number) for number in (0, 1 << 40, 2)] == [None, None, b"c"]
    assert store.hidden_bits("T", 2, 0) == b"other"
    assert sorted(store.latest_heads()) == [
        LatestHead("T", 1, 7, 3),
        LatestHead("T", 2, 5, 2),
        rest,
    ]
    store.forget_hidden("T")
    assert list(store.latest_heads()) == [rest]
    assert store.hidden_bits("T", 1, 2) is None
    store.put_hidden(LatestHead("T", 1, 7, 3), {2: b"c"})
    store.delete_topics([DeleteMark("T", 900, 1)])
    assert list(store.latest_heads()) == [rest]
    assert (store.hidden_bits("T", 1, 2), store.hidden_bits("TT", 0, 3)) == (None, b"rest")


def test_deleting_a_topic_takes_offsets_of_every_group_and_leaves_the_mark(
    store: Metadata,
) -> None:
    store.put_topics([topic("T"), topic("TT")])
    for group in ("g", "gg"):
        store.commit_offsets(group, [("T", 0, 5), ("T", 1, 6), ("TT", 0, 7)])
    store.delete_topics([DeleteMark("T", 900, 1)])
    assert store.topics(["T", "TT"]) == [None, topic("TT")]
    for group in ("g", "gg"):
        assert store.committed_offsets(group, [("T", 0), ("T", 1), ("TT", 0)]) == [None, None, 7]
        assert store.list_committed(group, None, 10) == [("TT", 0, 7)]
    assert store.delete_marks() == [DeleteMark("T", 900, 1)]
    store.drop_marks([DeleteMark("T", 900, 1)])
    assert store.delete_marks() == []


def test_last_units_are_one_for_each_queue_and_go_with_their_topic(store: Metadata) -> None:
    rest = [LastUnit("TT", 0, 7, 70), LastUnit("U", 0, 9, 90)]
    store.put_last_units([LastUnit("T", 0, 5, 50), LastUnit("T", 1 << 30, 6, 60), *rest])
    store.put_last_units([LastUnit("T", 0, 8, 80)])
    assert {unit for page in store.last_units() for unit in page} == {
        LastUnit("T", 0, 8, 80),
        LastUnit("T", 1 << 30, 6, 60),
        *rest,
    }
    store.delete_topics([DeleteMark("T", 900, 1)])
    assert sorted(unit for page in store.last_units() for unit in page) == rest


def test_last_units_are_listed_over_many_pages(store: Metadata) -> None:
    units = [LastUnit("T", number, number, number) for number in range(2500)]
    store.put_last_units(units)
    pages = list(store.last_units())
    assert len(pages) > 1
    assert [unit for page in pages for unit in page] == units


def test_a_group_goes_alone(store: Metadata) -> None:
    for group in ("a", "ab", "b"):
        store.commit_offsets(group, [("T", n, n) for n in range(3)])
    store.delete_group("a")
    assert store.list_groups(None, 10) == ["ab", "b"]
    assert store.list_groups("ab", 10) == ["b"]
    assert store.committed_offsets("a", [("T", 0)]) == [None]
    assert store.committed_offsets("ab", [("T", 2)]) == [2]
    store.delete_topics([DeleteMark("T", 0, 1)])
    assert store.list_committed("ab", None, 10) == []


def test_committed_offsets_are_paged_by_queue(store: Metadata) -> None:
    committed = [(name, queue, 10 * queue) for name in ("A", "B") for queue in range(5)]
    store.commit_offsets("g", committed)
    found: list[tuple[str, int, int]] = []
    after: tuple[str, int] | None = None
    while page := store.list_committed("g", after, 3):
        found += page
        after = page[-1][:2]
    assert found == committed


def test_small_values_are_kept_by_name(store: Metadata) -> None:
    assert store.get_state("x") is None
    store.put_state("x", b"1")
    store.put_state("xy", b"2")
    assert store.get_state("x") == b"1"
    store.put_state("y", b"3")
    assert store.states("x") == [("x", b"1"), ("xy", b"2")]
    assert store.states("") == [("x", b"1"), ("xy", b"2"), ("y", b"3")]
    store.drop_state("x")
    store.drop_state("x")
    assert store.get_state("x") is None
    assert store.states("x") == [("xy", b"2")]


def test_marks_are_listed_in_the_order_of_their_sequences(store: Metadata) -> None:
    store.put_topics([topic("T")])
    old = [DeleteMark("old", 5, -1), DeleteMark("older", 3, -2)]
    store.put_marks(old)
    for sequence in (1, 2, 10):
        store.delete_topics([DeleteMark(f"T{sequence}", 100 * sequence, sequence)])
    sequences = [mark.sequence for mark in store.delete_marks()]
    assert sequences == [-2, -1, 1, 2, 10]
    assert [mark.sequence for mark in store.marks_above(-2, 3)] == [-1, 1, 2]
    assert [mark.sequence for mark in store.marks_above(1, 9)] == [2, 10]
    assert store.marks_above(10, 9) == []
    assert store.last_mark() == 10
    store.drop_marks([DeleteMark("older", 3, -2), DeleteMark("T2", 200, 2)])
    assert [mark.sequence for mark in store.delete_marks()] == [-1, 1, 10]
    assert store.topics(["T"]) == [topic("T")]


def test_names_that_were_deleted_tell_below_which_offset_they_are_dead(store: Metadata) -> None:
    first, second = DeleteMark("T", 5, 1), DeleteMark("T", 9, 2)
    store.put_marks([DeleteMark("old", 3, 0)])
    store.delete_topics([first, DeleteMark("%LMQ%a", 5, 2)])
    assert store.dead_below(["T", "none", "old", "%LMQ%a"]) == [5, 0, 3, 5]
    store.delete_topics([second])
    assert store.dead_below(["T"]) == [9]
    store.drop_marks([first])  # the later one counts
    assert store.dead_below(["T"]) == [9]
    store.drop_marks([second])
    assert store.dead_below(["T", "%LMQ%a"]) == [0, 5]


def test_several_topics_are_deleted_in_one_step(store: Metadata) -> None:
    store.put_topics([topic("T"), topic("U"), topic("V")])
    store.commit_offsets("g", [("T", 0, 1), ("U", 0, 1), ("V", 0, 1)])
    marks = [DeleteMark("T", 7, 1), DeleteMark("U", 7, 2)]
    store.delete_topics(marks)
    assert store.topics(["T", "U", "V"]) == [None, None, topic("V")]
    assert store.list_committed("g", None, 9) == [("V", 0, 1)]
    assert store.delete_marks() == marks


def test_marks_of_an_earlier_version_are_named_on_opening() -> None:
    engine = MemoryEngine()
    store = MetadataStore(engine)
    marks = [DeleteMark("%LMQ%old", 3, -1), DeleteMark("%LMQ%a", 5, 1), DeleteMark("%LMQ%a", 9, 2)]

    def earlier(mark: DeleteMark) -> None:
        """What version 0.1 wrote of a mark."""
        key = b"d" + struct.pack(">q", mark.sequence)
        row = struct.pack(">q", mark.below_offset) + mark.topic.encode()
        engine.write(KvBatch(puts={META: [(key, row)]}))

    for mark in marks:
        earlier(mark)
    assert store.dead_below(["%LMQ%a"]) == [0]
    store.name_marks()
    assert store.dead_below(["%LMQ%a", "%LMQ%old"]) == [9, 3]
    store.delete_topics([DeleteMark("%LMQ%b", 11, 3)])
    earlier(DeleteMark("%LMQ%c", 13, 4))  # that version has run in between
    store.name_marks()
    assert store.dead_below(["%LMQ%a", "%LMQ%b", "%LMQ%c"]) == [9, 11, 13]
    before = dict(engine.scan(META, b"", b"\xff"))
    store.name_marks()
    assert dict(engine.scan(META, b"", b"\xff")) == before


def test_what_a_call_wrote_is_there_after_a_kill(tmp_path: Path) -> None:
    store = in_rocksdb(tmp_path / "meta")
    store.put_topics([topic("T"), topic("gone")])
    store.commit_offsets("g", [("T", 0, 5)])
    store.commit_offsets("h", [("T", 0, 5)])
    store.delete_topics([DeleteMark("gone", 900, 1)])
    store.delete_group("h")
    store.put_state("x", b"1")
    left = tmp_path / "left"
    shutil.copytree(tmp_path / "meta", left)
    store.close()
    again = in_rocksdb(left)
    assert again.topics(["T", "gone"]) == [topic("T"), None]
    assert again.list_committed("g", None, 9) == [("T", 0, 5)]
    assert again.list_groups(None, 9) == ["g"]
    assert again.delete_marks() == [DeleteMark("gone", 900, 1)]
    assert again.get_state("x") == b"1"
    again.close()
