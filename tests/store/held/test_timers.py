"""Delayed messages: put once at their time, recalled, listed, kept."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import store.held.timers as timers_module
from kvcq.inspect import inspect_store
from store.errors import InvalidArgumentError, UnknownQueueError, UnknownTopicError
from store.format import unpack_record
from store.held import MOST_AHEAD_MS, Recall
from store.message import Message
from store.state import TIMER_TOPIC
from tests.store.groups.test_keeping import HOUR, drop_all
from tests.support.rebuild import differences
from tests.support.seeds import fewer
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[MessageStore]:
    with open_by_hand(tmp_path, clock) as opened:
        yield opened


def open_by_hand(tmp_path: Path, clock: FakeClock) -> MessageStore:
    """Nothing is put but by `fire`."""
    opened = open_small(tmp_path / "store", clock, reserved_hours=1)
    opened.timers.firing.stop()
    return opened


def delay(store: MessageStore, clock: FakeClock, seconds: float, text: str = "a") -> str:
    """Its handle."""
    message = Message("T", text.encode(), 1, tag="tag", keys=(text,), properties={"p": "v"})
    due = clock.now_ms() + round(seconds * 1000)
    return store.timers.put([message], [due]).handles[0]


def fire(store: MessageStore) -> int:
    count = 0
    while more := store.timers.firing.fire():
        count += more
    return count


def texts(store: MessageStore, topic: str = "T", queue_id: int = 1) -> list[str]:
    try:
        ((low, high),) = store.bounds([(topic, queue_id)])
    except UnknownTopicError:
        return []
    found = []
    while low < high:
        pulled = store.pull(topic, queue_id, low, max_messages=1000)
        found += [bytes(each.body).decode() for each in map(unpack_record, pulled.records)]
        low = pulled.next_offset
    return found


def test_a_message_is_put_at_its_time_and_is_what_it_was(
    store: MessageStore, clock: FakeClock
) -> None:
    due = clock.now_ms() + 5000
    delay(store, clock, 5)
    assert texts(store) == []
    clock.advance(4.999)
    assert fire(store) == 0
    clock.advance(0.001)
    assert fire(store) == 1
    assert fire(store) == 0
    (record,) = store.pull("T", 1, 0).records
    found = unpack_record(record)
    assert (found.topic, found.queue_id, found.body, found.tag) == ("T", 1, b"a", "tag")
    assert found.keys == ("a",)
    own = {
        name: found.properties[name] for name in found.properties if name not in ("KEYS", "TAGS")
    }
    assert own == {"p": "v", "TIMER_DELIVER_MS": str(due)}
    assert store.query("T", "a").records == [record]
    assert store.timers.count() == 0
    assert differences(store) == []


def test_what_is_due_first_is_put_first_whatever_was_put_first(
    store: MessageStore, clock: FakeClock
) -> None:
    for seconds in (30, 10, 20, 10):
        delay(store, clock, seconds, str(seconds))
    clock.advance(10)
    assert fire(store) == 2
    delay(store, clock, 1, "late")
    clock.advance(30)
    # Behind the last look, and below what is known to be the lowest.
    store.timers.put([Message("T", b"past", 1)], [clock.now_ms() - 39_000])
    assert fire(store) == 4
    assert texts(store) == ["10", "10", "past", "late", "20", "30"]


def test_a_recall_is_one_outcome(store: MessageStore, clock: FakeClock) -> None:
    first, second = delay(store, clock, 5, "a"), delay(store, clock, 5, "b")
    recalled = store.timers.recall("T", [first, first])
    assert recalled.outcomes == [Recall.RECALLED, Recall.NOT_WAITING]
    clock.advance(5)
    assert fire(store) == 1
    assert texts(store) == ["b"]
    assert store.timers.recall("T", [first, second]).outcomes == [Recall.NOT_WAITING] * 2
    assert differences(store) == []


def test_a_handle_of_another_topic_or_none_is_refused(
    store: MessageStore, clock: FakeClock
) -> None:
    handle = delay(store, clock, 5)
    for topic, wrong in (("U", handle), ("T", handle[:-2] + "AA"), ("T", ""), ("T", "é" * 9)):
        with pytest.raises(
            InvalidArgumentError, match="not the handle of a delayed message"
        ) as caught:
            store.timers.recall(topic, [wrong])
        assert caught.value.field == "handles[0]"
    assert store.timers.count() == 1


def test_it_stands_in_light_queues_when_it_is_put(store: MessageStore, clock: FakeClock) -> None:
    names = ("%LMQ%a", "%LMQ%b")
    message = Message("T", b"x", 0, light_queues=names)
    store.timers.put([message], [clock.now_ms() + 10])
    assert store.list_light_queues("", None, 9) == []
    clock.advance(1)
    assert fire(store) == 1
    for name in names:
        assert texts(store, name, 0) == ["x"]
    assert differences(store) == []


@pytest.mark.parametrize("again", [False, True])
def test_with_its_topic_it_is_gone_and_counted(
    store: MessageStore, clock: FakeClock, again: bool
) -> None:
    delay(store, clock, 5)
    store.delete_topic("T")
    if again:
        store.create_topics([("T", 4)])
    clock.advance(5)
    assert fire(store) == 1
    assert texts(store) == []
    assert store.statistics()["store.timers_gone"] == 1
    assert store.timers.count() == 0
    assert differences(store) == []


def test_bad_input_names_its_field_and_changes_nothing(
    store: MessageStore, clock: FakeClock
) -> None:
    store.create_topics([("T", 4)])
    end = store.log.appended_offset
    now = clock.now_ms()
    cases: list[tuple[Message, int, str]] = [
        (Message("T", b""), now + MOST_AHEAD_MS + 1, "messages[0].deliver_at"),
        (Message("T", b""), -1, "messages[0].deliver_at"),
        (Message("T", b"", sys_flag=4), now, "messages[0].deliver_at"),
        (Message("T", b"", properties={"REAL_TOPIC": "x"}), now, "messages[0].properties"),
        (Message("T", b"", -1), now, "messages[0].queue_id"),
        (Message("a b", b""), now, "messages[0].topic"),
        (Message("rmq_sys_x", b""), now, "messages[0].topic"),
        (Message("T", b"", properties={"p": "v" * 32_700}), now, "messages[0].properties"),
    ]
    for message, due, field in cases:
        with pytest.raises(InvalidArgumentError) as caught:
            store.timers.put([message], [due])
        assert caught.value.field == field
    with pytest.raises(UnknownQueueError):
        store.timers.put([Message("T", b"", 4)], [now])
    with pytest.raises(InvalidArgumentError, match="system topic"):
        store.delete_topic(TIMER_TOPIC)
    assert store.log.appended_offset == end
    store.timers.put([Message("T", b"")], [now + MOST_AHEAD_MS])
    with pytest.raises(InvalidArgumentError, match="system topic"):
        store.put([Message(TIMER_TOPIC, b"")])


def test_they_are_kept_when_their_segments_go(store: MessageStore, clock: FakeClock) -> None:
    handles = [delay(store, clock, 100 * HOUR, str(n)) for n in range(600)]
    gone = delay(store, clock, 1, "gone")
    clock.advance(1)
    fire(store)
    store.timers.recall("T", handles[:10])
    for _ in range(3):
        drop_all(store, clock)
        assert store.timers.count() == 590
        assert differences(store) == []
    assert store.statistics()["store.timers_moved"] == 3 * 590
    assert store.timers.recall("T", [handles[10], gone]).outcomes == [
        Recall.RECALLED,
        Recall.NOT_WAITING,
    ]
    page = store.timers.page(limit=1000)
    assert [each.handle for each in page.found] == handles[11:]
    clock.advance(100 * HOUR)
    assert fire(store) == 589
    assert texts(store)[-589:] == [str(n) for n in range(11, 600)]


def put_longest(put: Callable[[Message], object], light_queues: tuple[str, ...] = ()) -> None:
    """Messages with ever longer properties, up to the longest that are taken."""
    low, high = 0, 33_000
    while high - low > 1:
        size = (low + high) // 2
        properties = {"p": "v" * size}
        try:
            put(Message("T", b"", 1, light_queues=light_queues, properties=properties))
            low = size
        except InvalidArgumentError:
            high = size


def test_what_fills_its_properties_is_kept_when_its_segment_goes(
    store: MessageStore, clock: FakeClock
) -> None:
    due = clock.now_ms() + round(100 * HOUR * 1000)
    put_longest(lambda message: store.timers.put([message], [due]))
    before = store.timers.count()
    assert before
    drop_all(store, clock)
    assert store.statistics()["store.timers_moved"] == store.timers.count() == before
    clock.advance(100 * HOUR)
    assert fire(store) == before
    assert store.statistics()["store.timers_lost"] == 0


def test_what_is_taken_for_many_light_queues_is_put_at_its_time(
    store: MessageStore, clock: FakeClock
) -> None:
    names = tuple(f"%LMQ%{number:04}" for number in range(1000))
    due = clock.now_ms() + 1000
    put_longest(lambda message: store.timers.put([message], [due]), names)
    before = store.timers.count()
    assert before
    clock.advance(1)
    assert fire(store) == before
    assert store.statistics()["store.timers_lost"] == 0
    assert store.statistics()["store.timers_fired"] == before


def test_pages_have_what_is_due_first_of_a_topic(store: MessageStore, clock: FakeClock) -> None:
    for n in range(10):
        delay(store, clock, 20 - n, str(n))
        store.timers.put([Message("U", b"u")], [clock.now_ms() + 500 * n])
    found, cursor = [], None
    while True:
        page = store.timers.page("T", cursor, 3)
        found += [each.message.body.decode() for each in page.found]
        cursor = page.cursor
        if cursor is None:
            break
    assert found == [str(n) for n in reversed(range(10))]
    assert store.timers.page("V").found == []
    with pytest.raises(InvalidArgumentError):
        store.timers.page(limit=1001)


def test_a_page_that_ends_as_enough_was_looked_at_goes_on_behind_it(
    store: MessageStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers_module, "_LOOKED_TOGETHER", 2)
    monkeypatch.setattr(timers_module, "_MOST_LOOKED", 4)
    for n in range(10):
        delay(store, clock, 1 + n, str(n))
    found, cursor, pages = [], None, 0
    while pages == 0 or cursor is not None:
        page = store.timers.page("T", cursor)
        found += [each.message.body.decode() for each in page.found]
        cursor, pages = page.cursor, pages + 1
    assert found == [str(n) for n in range(10)]
    assert pages == 3


def test_deliveries_make_room_only_for_others_that_append(
    store: MessageStore, clock: FakeClock
) -> None:
    firing = store.timers.firing
    due = [clock.now_ms()] * 1024
    store.timers.put([Message("T", b"x")] * 1024, due)
    firing.fire()
    made_room = []
    for beside in (0, 1, 0):
        if beside:
            store.put([Message("T", b"beside")])
        firing.fire()
        made_room.append(firing.others_append)
    assert made_room == [False, True, False]


def test_the_thread_puts_what_is_due_by_itself(tmp_path: Path, clock: FakeClock) -> None:
    with open_small(tmp_path / "store", clock) as store:
        delay(store, clock, 5)
        arrived = threading.Event()
        store.on_dispatch(lambda requests: arrived.set() if requests[-1].topic == "T" else None)
        clock.advance(5)
        assert arrived.wait(10)
        assert texts(store) == ["a"]


def test_a_jump_of_the_clock_is_followed_step_by_step(
    store: MessageStore, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    delay(store, clock, 3600, "soon")
    delay(store, clock, 23 * 3600, "later")
    clock.jump(24 * 3600)
    assert fire(store) == 0
    for _ in range(5):
        clock.advance(60)
        assert fire(store) == 0
    clock.advance(60)
    assert fire(store) == 1
    assert texts(store) == ["soon"]


def test_a_closed_store_has_all_of_it_when_it_is_opened(tmp_path: Path, clock: FakeClock) -> None:
    with open_by_hand(tmp_path, clock) as store:
        handles = [delay(store, clock, 5, str(n)) for n in range(3)]
        store.timers.recall("T", handles[:1])
    assert inspect_store(tmp_path / "store").findings == []
    with open_by_hand(tmp_path, clock) as store:
        assert store.timers.count() == 2
        clock.advance(6)
        assert fire(store) == 2
        assert texts(store) == ["1", "2"]
        assert store.timers.recall("T", handles).outcomes == [Recall.NOT_WAITING] * 3


@pytest.mark.parametrize("rounds", fewer(20, 100))
def test_a_recall_against_its_time_has_one_outcome_however_often(
    tmp_path: Path, clock: FakeClock, rounds: int
) -> None:
    each = 100
    with open_small(tmp_path / "store", clock) as store:
        recalled: set[str] = set()
        for number in range(rounds):
            some = [f"{number}.{at}" for at in range(each)]
            due = clock.now_ms() + 1000
            messages = [Message("T", text.encode(), 1) for text in some]
            handles = store.timers.put(messages, [due] * each).handles
            begin = threading.Barrier(2)

            def recall(some: list[str] = some, handles: list[str] = handles) -> None:
                begin.wait()  # noqa: B023 - of this round
                for text, handle in zip(reversed(some), reversed(handles), strict=True):
                    (outcome,) = store.timers.recall("T", [handle]).outcomes
                    if outcome is Recall.RECALLED:
                        recalled.add(text)

            thread = threading.Thread(target=recall)
            thread.start()
            begin.wait()
            clock.advance(1)  # its own thread puts what is due
            store.timers.firing.fire()
            thread.join()
        while store.timers.count():
            store.timers.firing.fire()
        found = Counter(texts(store))
        assert set(found.values()) <= {1}
        assert not recalled & found.keys()
        assert len(recalled) + len(found) == rounds * each
        assert store.statistics()["store.timers_lost"] == 0
