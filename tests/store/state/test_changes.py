"""The view at the log's end is what dispatch makes of the log, whatever was dispatched by then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from store.metadata import KEEP_ALL, MessageType, Retention, TopicConfig
from store.state import (
    Changes,
    Committed,
    Entry,
    GroupEnded,
    Passed,
    StateView,
    Tables,
    TimerEnd,
    TimersEnded,
    TimerSet,
    TopicEnded,
    TopicKeeps,
    TopicsMade,
    TopicTakes,
    changes_of,
    pack_entries,
    timer_key,
    unpack_entries,
)
from tests.support.state import ENTRIES, DictRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.state import Entry
    from store.state.rows import Pair


class ViewMachine(RuleBasedStateMachine):
    """A log of state records, dispatched whenever; a twin that dispatches each at once."""

    def __init__(self) -> None:
        super().__init__()
        self.database, self.twin = DictRows(), DictRows()
        # Where each record begins, its body, and what it changes as the appender saw it.
        self.log: list[tuple[int, bytes, Changes]] = []
        self.end = self.dispatched = 0
        self.view = StateView(self.database, lambda: self.dispatched)

    @rule(entries=st.lists(ENTRIES, min_size=1, max_size=4))
    def append(self, entries: list) -> None:  # type: ignore[type-arg]
        ((_, body),) = pack_entries(entries)
        at, self.end = self.end, self.end + len(body)
        self.log.append((at, body, self.view.append(entries, at, self.end)))
        self.twin.take(changes_of(unpack_entries(body), at, self.twin))

    @rule(is_told=st.booleans(), is_read=st.booleans())
    def dispatch(self, is_told: bool, is_read: bool) -> None:
        if self.log:
            at, body, seen = self.log.pop(0)
            read = changes_of(unpack_entries(body), at, self.database)
            assert (seen.written, seen.ended) == (read.written, read.ended)
            self.database.take(read if is_read else seen)
            if is_told:  # otherwise the watermark follows later
                self.dispatched = at + len(body)

    @invariant()
    def the_view_has_what_the_twin_has(self) -> None:
        for table in (b"t", b"g", b"o", b"q", b"l", b"h", b"w", b"x", b"y"):
            end = bytes([table[0] + 1])
            assert list(self.view.scan(table, end)) == list(self.twin.scan(table, end))
            for limit in (1, 3):
                assert list(self.view.scan(table, end, limit)) == list(
                    self.twin.scan(table, end, limit)
                )
        keys = list(self.twin.rows)
        assert self.view.multi_get(keys) == self.twin.multi_get(keys)
        for key in self.database.rows:
            assert self.view.get(key) == self.twin.get(key)


TestView = ViewMachine.TestCase
TestView.settings = settings(max_examples=20, stateful_step_count=30)


def test_a_topic_counts_from_the_record_that_made_it() -> None:
    rows = DictRows()
    rows.take(changes_of([TopicsMade(["t"], 4, 7, KEEP_ALL)], 100, rows))
    rows.take(changes_of([TopicKeeps("t", Retention(messages=5))], 300, rows))
    found = Tables(rows).topic("t")
    assert found is not None
    assert (found.queue_count, found.created_ms, found.created_offset) == (4, 7, 100)
    assert found.retention == Retention(messages=5)


@pytest.mark.parametrize("retention", [KEEP_ALL, Retention(messages=5, latest=True)])
@pytest.mark.parametrize("message_type", MessageType)
def test_a_topic_keeps_its_type_beside_what_it_keeps(
    message_type: MessageType, retention: Retention
) -> None:
    rows = DictRows()
    made: list[Entry] = [TopicsMade(["t"], 4, 7, retention), TopicTakes("t", message_type)]
    rows.take(changes_of(made, 100, rows))
    found = Tables(rows).topic("t")
    assert found is not None
    assert found == TopicConfig("t", 4, 7, 100, retention, message_type)
    rows.take(changes_of([TopicKeeps("t", KEEP_ALL)], 200, rows))
    assert Tables(rows).topic("t") == found._replace(retention=KEEP_ALL)
    rows.take(changes_of([TopicTakes("t", MessageType.ANY)], 300, rows))
    plain = DictRows()
    plain.take(changes_of([TopicsMade(["t"], 4, 7, KEEP_ALL)], 100, plain))
    assert rows.rows == plain.rows  # as programs before types wrote it


@pytest.mark.parametrize("how", [TimerEnd.FIRED, TimerEnd.LOST])
def test_delayed_messages_that_end_together_end_as_one_by_one(how: TimerEnd) -> None:
    rows = DictRows()
    made = TopicsMade(["T"], 1, 0, KEEP_ALL)
    rows.take(changes_of([made, *(TimerSet("T", 5, n, 7) for n in range(4))], 1, rows))
    ended = [TimersEnded([timer_key(5, n) for n in (0, 2, 3)], how)]
    ((_, body),) = pack_entries(ended)
    one_by_one = unpack_entries(body)
    assert len(one_by_one) == 3
    changes = changes_of(ended, 1, rows)
    assert changes.written == changes_of(one_by_one, 1, rows).written
    rows.take(changes)
    assert Tables(rows).count_timers() == 1


def test_a_deletion_takes_the_offsets_of_all_groups_on_the_topic() -> None:
    rows = DictRows()
    made = [TopicsMade(["t", "tt"], 4, 7, KEEP_ALL)]
    committed = [Committed(g, t, q, 3) for g in ("g", "gg") for t in ("t", "tt") for q in (0, 1)]
    rows.take(changes_of([*made, *committed], 0, rows))
    changes = changes_of([TopicEnded("t")], 50, rows)
    assert changes.ended == ["t"]
    rows.take(changes)
    tables = Tables(rows)
    assert tables.topics(["t", "tt"])[0] is None
    assert tables.list_committed("g", None, 9) == [("tt", 0, 3), ("tt", 1, 3)]
    assert (tables.readers("t"), tables.readers("tt")) == ([], ["g", "gg"])


def test_a_group_ends_with_all_its_offsets_and_no_others() -> None:
    rows = DictRows()
    rows.take(changes_of([Committed(g, "t", 0, 1) for g in ("g", "gg")], 0, rows))
    rows.take(changes_of([GroupEnded("g")], 9, rows))
    assert Tables(rows).committed_offsets("g", [("t", 0)]) == [None]
    assert Tables(rows).committed_offsets("gg", [("t", 0)]) == [1]
    assert Tables(rows).readers("t") == ["gg"]


def test_the_rows_of_a_group_are_read_once_when_it_ends() -> None:
    """Others wait for the append lock meanwhile."""

    class CountedRows(DictRows):
        read = 0

        def scan(self, start: bytes, end: bytes, limit: int | None = None) -> Sequence[Pair]:
            found = super().scan(start, end, limit)
            self.read += len(found)
            return found

    rows, count = CountedRows(), 5000
    for made in ([Committed("g", f"t{n}", 0, 1) for n in range(count)], [Passed("g", "t", 0, 1)]):
        rows.take(changes_of(made, 0, rows))
    rows.read = 0
    rows.take(changes_of([GroupEnded("g")], 9, rows))
    assert rows.read < count + 1000
    assert [key for key in rows.rows if key[:1] in (b"o", b"q", b"w")] == []


@given(st.integers(0, 1000))
def test_a_range_of_many_rows_is_deleted_as_one(count: int) -> None:
    rows = DictRows()
    rows.take(changes_of([Committed("g", "t", q, q) for q in range(count)], 0, rows))
    changes = changes_of([GroupEnded("g"), Committed("g", "t", 5, 1)], 9, rows)
    rows.take(changes)
    assert Tables(rows).list_committed("g", None, 9) == [("t", 5, 1)]
