"""Transactions at the store: one outcome for each half, whoever decides, and when."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

import pytest

from kvcq.inspect import inspect_store
from store.errors import (
    AppendWouldWaitError,
    InvalidArgumentError,
    TooManyTransactionsError,
    TransactionEndedError,
    UnknownTopicError,
    UnknownTransactionError,
)
from store.format.record import unpack_record
from store.held import Begin, Decide
from store.message import Message
from store.state import HALVES_TOPIC, HalfEnd
from tests.store.groups.test_keeping import drop_all
from tests.store.held.test_timers import put_longest
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import differences
from tests.support.seeds import seeds
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store.message_store import MessageStore

HOUR = 3600.0


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[MessageStore]:
    with open_small(tmp_path / "store", clock, reserved_hours=1) as opened:
        yield opened


def begin(store: MessageStore, text: str = "a", topic: str = "T", group: str = "g") -> str:
    return store.halves.begin(Message(topic, text.encode(), 1), group)


def texts(store: MessageStore, topic: str = "T", queue_id: int = 1) -> list[str]:
    try:
        ((first, _),) = store.bounds([(topic, queue_id)])
        records = store.pull(topic, queue_id, first, max_messages=1000).records
    except UnknownTopicError:
        return []
    return [unpack_record(record).body.decode() for record in records]


def listed(store: MessageStore) -> list[str]:
    return [each.transaction_id for each in store.halves.list()[0]]


def test_a_message_is_seen_once_it_is_committed(store: MessageStore) -> None:
    message = Message(
        *("T", b"body", 1, "tag", ("k1", "k2"), ("%LMQ%device",)),
        properties={"colour": "red", "UNIQ_KEY": "id"},
        flag=7,
    )
    one = store.halves.begin(message, "g")
    assert (texts(store), listed(store)) == ([], [one])
    assert not store.query("T", "k1").records
    with pytest.raises(UnknownTopicError):
        store.pull("%LMQ%device", 0, 0)
    store.halves.end(one, commit=True)
    (record,) = store.pull("T", 1, 0).records
    was = unpack_record(record)
    assert (was.body, was.tag, was.keys, was.flag) == (b"body", "tag", ("k1", "k2"), 7)
    assert was.properties["colour"] == "red"
    assert "REAL_TOPIC" not in was.properties
    assert store.pull("%LMQ%device", 0, 0).records == [record]
    assert store.query("T", "k1").records == [record]
    assert listed(store) == []
    assert differences(store) == []


def test_what_is_rolled_back_is_never_seen(store: MessageStore) -> None:
    one = begin(store)
    store.halves.end(one, commit=False)
    assert (texts(store), listed(store)) == ([], [])
    with pytest.raises(TransactionEndedError, match="was rolled back") as caught:
        store.halves.end(one, commit=True)
    assert caught.value.outcome == "rolled back"
    assert texts(store) == []


@pytest.mark.parametrize("commit", [True, False])
def test_the_same_decision_may_be_made_again_after_a_restart_too(
    tmp_path: Path, clock: FakeClock, commit: bool
) -> None:
    with open_small(tmp_path, clock) as store:
        one = begin(store)
        store.halves.end(one, commit=commit)
        store.halves.end(one, commit=commit)
    with open_small(tmp_path, clock) as store:
        store.halves.end(one, commit=commit)
        with pytest.raises(TransactionEndedError):
            store.halves.end(one, commit=not commit)
        assert texts(store) == ["a"] * commit


def _decide(
    store: MessageStore, one: str, commit: bool, done: list[bool], barrier: threading.Barrier
) -> None:
    barrier.wait()
    try:
        store.halves.end(one, commit=commit)
    except TransactionEndedError:
        return
    done.append(commit)


def test_of_many_that_decide_at_once_one_is_first(store: MessageStore) -> None:
    for n in range(20):
        one = begin(store, f"{n}")
        done: list[bool] = []
        barrier = threading.Barrier(4)

        threads = [
            threading.Thread(target=_decide, args=(store, one, at % 2 == 0, done, barrier))
            for at in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert done in ([True, True], [False, False])
        assert texts(store).count(f"{n}") == done[0]


def test_two_decisions_in_one_append_have_one_outcome(store: MessageStore) -> None:
    one, two = begin(store, "a"), begin(store, "b")
    calls = [Decide(one, True), Decide(one, True), Decide(one, False), Decide(two, False)]
    answers, _ = store.halves.decide([*calls, Decide(two, True), Decide("no", True)])
    kinds = [str if isinstance(each, str) else type(each) for each in answers]
    assert kinds == [
        str,
        str,
        TransactionEndedError,
        str,
        TransactionEndedError,
        InvalidArgumentError,
    ]
    assert texts(store) == ["a"]
    assert differences(store) == []


def test_many_begin_in_one_append_and_new_topics_are_made(store: MessageStore) -> None:
    calls = [Begin(Message(f"T{n % 3}", b"%d" % n, 1), "g") for n in range(200)]
    answers, _ = store.halves.decide([*calls, Begin(Message("T", b"x", 99), "g")])
    assert type(answers.pop()).__name__ == "UnknownQueueError"
    store.halves.decide([Decide(str(each), True) for each in answers])
    for topic in range(3):
        assert texts(store, f"T{topic}") == [f"{n}" for n in range(topic, 200, 3)]
    assert differences(store) == []


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_dispatch_may_have_a_record_before_its_appender_has_noted_it(
    store: MessageStore,
    monkeypatch: pytest.MonkeyPatch,
    is_interrupted: bool,
) -> None:
    """What the record changes is counted once all the same."""
    appends = store._appends
    settle = appends._settle_state

    def late(place: tuple[int, int] | None = None) -> None:
        appends._reput.dispatch_to(store.log.appended_offset)
        settle(None if is_interrupted else place)

    monkeypatch.setattr(appends, "_settle_state", late)
    ids = [begin(store, f"{n}") for n in range(5)]
    for one in ids[:3]:
        store.halves.end(one, commit=True)
    store.timers.put([Message("T", b"x")], [store.timers.now_ms() + 60_000])
    assert texts(store) == ["0", "1", "2"]
    assert store.statistics()["store.transactions_open"] == 2
    assert store.tables.count_timers() == 1
    assert differences(store) == []


def test_one_is_decided_at_once_or_not_at_all(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at_once(*calls: Begin | Decide) -> str:
        (answer,), _ = store.halves.decide(calls, at_once=True)
        assert isinstance(answer, str)
        return answer

    begun = at_once(Begin(Message("T", b"a", 1), "g"))
    assert at_once(Decide(begun, commit=True)) == begun
    store.wait_visible()
    assert texts(store) == ["a"]
    waits = at_once(Begin(Message("T", b"b", 1), "g"))
    decide = Decide(waits, commit=True)
    with store.log.lock, pytest.raises(AppendWouldWaitError):
        at_once(decide)
    with pytest.raises(AppendWouldWaitError):
        at_once(decide, decide)
    with pytest.raises(AppendWouldWaitError):
        at_once(Begin(Message("T", bytes(40_000)), "g"))
    monkeypatch.setattr(type(store.reads), "is_cold", lambda *_: True)
    with pytest.raises(AppendWouldWaitError):
        at_once(decide)
    monkeypatch.undo()
    assert at_once(decide) == waits
    store.wait_visible()
    assert texts(store) == ["a", "b"]
    assert differences(store) == []


def test_a_decision_that_waits_for_a_segment_is_made_once(store: MessageStore) -> None:
    store.log.create_segments_in_background()
    wanted = []
    for n in range(60):
        calls = [Begin(Message("T", f"{n}-{at}".ljust(900).encode(), 1), "g") for at in range(5)]
        answers, _ = store.halves.decide(calls)
        store.halves.decide([Decide(str(each), True) for each in answers])
        wanted += [f"{n}-{at}".ljust(900) for at in range(5)]
    store.wait_visible()
    assert texts(store) == wanted
    assert differences(store) == []


def test_a_topic_that_was_deleted_or_made_again_gets_nothing(store: MessageStore) -> None:
    one, two = begin(store), begin(store)
    store.delete_topic("T")
    with pytest.raises(TransactionEndedError, match="its topic was deleted"):
        store.halves.end(one, commit=True)
    store.put([Message("T", b"new", 1)])
    with pytest.raises(TransactionEndedError) as caught:
        store.halves.end(two, commit=True)
    assert caught.value.outcome == "topic gone"
    store.halves.end(two, commit=False)  # nothing was delivered, as they want it
    assert texts(store) == ["new"]
    assert store.halves.ended[HalfEnd.TOPIC_GONE] == 2
    assert differences(store) == []


def test_checks_count_when_they_were_sent_and_end(store: MessageStore, clock: FakeClock) -> None:
    one = begin(store)
    clock.advance(5.9)
    assert store.halves.due("g") == []
    clock.advance(HOUR)  # nobody is there to be asked
    (check,) = store.halves.due("g")
    assert (check.transaction_id, check.checks, check.message.body) == (one, 0, b"a")
    assert store.halves.due("other") == []
    for count in range(15):
        (check,) = store.halves.due("g")
        assert check.checks == count
        store.halves.checked([check.half])
        store.halves.checked([check.half])  # of two who asked at once, one counts
        assert store.halves.due("g") == []
        clock.advance(30)
    assert store.halves.due("g") == []
    (kept,) = store.halves.list(given_up=True)[0]
    assert (kept.transaction_id, kept.checks, kept.next_check_ms) == (one, 15, None)
    assert store.statistics()["store.transactions_given_up"] == 1
    assert differences(store) == []
    store.halves.end(one, commit=True)
    assert texts(store) == ["a"]
    assert store.statistics()["store.transactions_given_up"] == 0


def test_one_that_was_given_up_is_found_among_many(store: MessageStore, clock: FakeClock) -> None:
    """A page of them has one, not a part of the open ones."""
    for number in range(30):
        begin(store, f"{number}", group="many")
    one = begin(store, group="few")
    for _ in range(15):
        clock.advance(30)
        store.halves.checked([each.half for each in store.halves.due("few")])
    clock.advance(30)
    assert store.halves.due("few") == []
    for group, given_up in (("", True), ("few", False)):
        page, after = store.halves.list(limit=2, group=group, given_up=given_up)
        assert ([each.transaction_id for each in page], after) == ([one], None)
    first, goes_on = store.halves.list(limit=20, group="many")
    assert goes_on is not None
    rest, end = store.halves.list(goes_on, 20, group="many")
    assert (len(first), len(rest), end) == (20, 10, None)
    assert (store.halves.count("few"), store.halves.count()) == ((1, 1), (31, 1))


def test_nobody_is_asked_within_the_immunity_time(store: MessageStore, clock: FakeClock) -> None:
    store.halves.begin(Message("T", b"a", 1), "g", 60_000)
    clock.advance(59)
    assert store.halves.due("g") == []
    clock.advance(1)
    assert len(store.halves.due("g")) == 1


def test_halves_outlive_their_segments_with_their_checks(
    store: MessageStore, clock: FakeClock
) -> None:
    ids = [begin(store, f"{n}") for n in range(10)]
    clock.advance(6)
    store.halves.checked([each.half for each in store.halves.due("g")])
    store.halves.end(ids[3], commit=False)
    rest = [each for each in ids if each != ids[3]]
    for _ in range(3):
        drop_all(store, clock)
        assert listed(store) == rest
        assert {each.checks for each in store.halves.list()[0]} == {1}
        assert differences(store) == []
    store.put([Message("T", b"alive", 1)])
    store.halves.end(ids[0], commit=True)
    store.halves.end(ids[1], commit=False)
    assert texts(store)[-1] == "0"
    assert len(store.halves.due("g")) == 7


def test_a_half_that_fills_its_properties_outlives_its_segment(
    store: MessageStore, clock: FakeClock
) -> None:
    put_longest(lambda message: store.halves.begin(message, "g"))
    ids = listed(store)
    assert ids
    drop_all(store, clock)
    assert listed(store) == ids
    store.halves.end(ids[0], commit=True)
    assert store.handing_back.halves("RMQ_SYS_TRANS_HALF_TOPIC", "G").halves == len(ids) - 1


def test_limits_of_open_transactions(tmp_path: Path, clock: FakeClock) -> None:
    settings = {"max_open_transactions": 3, "max_open_transactions_of_group": 2}
    with open_small(tmp_path, clock, **settings) as store:  # type: ignore[arg-type]
        one = begin(store)
        begin(store)
        with pytest.raises(TooManyTransactionsError, match="group 'g' has 2 open"):
            begin(store)
        begin(store, group="h")
        with pytest.raises(TooManyTransactionsError, match="this store has 3"):
            begin(store, group="i")
        store.halves.end(one, commit=False)
        begin(store)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (Message("T", b"", properties={"REAL_TOPIC": "x"}), "messages[0].properties"),
        (Message("", b""), "topic"),
        (Message(HALVES_TOPIC, b""), "topic"),
        (Message("T", b"", sys_flag=4), "messages[0].transaction"),
        (Message("T", b"x" * (5 << 20)), "messages[0].body"),
    ],
)
def test_bad_messages_are_refused_with_their_field(
    store: MessageStore, message: Message, field: str
) -> None:
    end = store.log.appended_offset
    with pytest.raises(InvalidArgumentError) as caught:
        store.halves.begin(message, "g")
    assert caught.value.field == field
    assert store.log.appended_offset == end


@pytest.mark.parametrize("text", ["", "x", "AAAA", "ä", "x" * 600])
def test_ids_that_no_store_gave_are_refused(store: MessageStore, text: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        store.halves.end(text, commit=True)
    assert caught.value.field == "transaction_id"


def test_an_id_that_was_changed_names_nothing(store: MessageStore) -> None:
    one = begin(store)
    for at in range(len(one)):
        for other in ("A", "z"):
            changed = one[:at] + other + one[at + 1 :]
            if changed == one:
                continue
            with pytest.raises(InvalidArgumentError):
                store.halves.end(changed, commit=True)
    assert texts(store) == []


def test_nobody_puts_to_the_topic_of_halves(store: MessageStore) -> None:
    begin(store)
    with pytest.raises(InvalidArgumentError):
        store.put([Message(HALVES_TOPIC, b"")])
    with pytest.raises(InvalidArgumentError):
        store.delete_topic(HALVES_TOPIC)


@pytest.mark.parametrize("seed", seeds(2, 6))
def test_random_histories_have_one_outcome_each(tmp_path: Path, seed: int) -> None:
    """A model of what was decided, over restarts, dropped segments and deleted topics."""
    chance, clock = random.Random(seed), FakeClock()
    store = open_small(tmp_path, clock, reserved_hours=1)
    open_ones: dict[str, tuple[str, str]] = {}  # id to topic and text
    decided: dict[str, bool] = {}
    wanted: dict[str, list[str]] = {"T": [], "U": []}
    alive = {"T": True, "U": True}
    for n in range(150):
        match chance.choice(["begin"] * 4 + ["end"] * 4 + ["check", "drop", "restart", "delete"]):
            case "begin":
                topic = chance.choice("TU")
                open_ones[begin(store, f"{n}".ljust(300), topic)] = topic, f"{n}".ljust(300)
                alive[topic] = True
            case "end" if open_ones:
                one = chance.choice(list(open_ones))
                commit = chance.random() < 0.5
                topic, text = open_ones.pop(one)
                if commit and text == "dead":
                    with pytest.raises(TransactionEndedError):
                        store.halves.end(one, commit=True)
                    continue
                store.halves.end(one, commit=commit)
                decided[one] = commit
                if commit:
                    wanted[topic].append(text)
            case "check":
                clock.advance(40)
                due = store.halves.due("g")
                store.halves.checked([each.half for each in due])
            case "drop" if n % 3 == 0:
                drop_all(store, clock)
                wanted = {"T": [], "U": []}
                decided.clear()
                for topic in "TU":
                    wanted[topic] = texts(store, topic)
            case "restart":
                store.close()
                store = open_small(tmp_path, clock, reserved_hours=1)
            case "delete":
                topic = chance.choice("TU")
                try:
                    store.delete_topic(topic)
                except UnknownTopicError:
                    continue
                wanted[topic] = []
                for one, (of, _) in open_ones.items():
                    if of == topic:
                        open_ones[one] = topic, "dead"
        for one, commit in decided.items():
            with pytest.raises((TransactionEndedError, UnknownTransactionError)):
                store.halves.end(one, commit=not commit)
    assert {topic: texts(store, topic) for topic in "TU"} == wanted
    gone = {one for one, (_, text) in open_ones.items() if text == "dead"}
    assert set(open_ones) - gone <= set(listed(store)) <= set(open_ones)
    assert differences(store) == []
    store.close()
    assert not [each for each in inspect_store(tmp_path).findings if each.is_fault]
