"""What became of a message, told from the log: equal to what was done with it."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

import pytest

import store.trace.traces as traces_module
from store.errors import InvalidArgumentError, MessageNotFoundError
from store.format import parse_message_id, unpack_record
from store.groups import AtOffset
from store.message import Message
from store.metadata import SharedGroup
from store.state import HALVES_TOPIC, STATE_TOPIC, TIMER_TOPIC
from store.trace import Now, Reader, What
from store.trace.cursor import Cursor, pack_cursor
from tests.store.held.test_timers import fire, open_by_hand
from tests.support.fake_clock import FakeClock
from tests.support.seeds import seeds
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store.groups import Delivery
    from store.message_store import MessageStore
    from store.trace import Story

LIGHT = "%LMQ%l"
DLQ = "%DLQ%g"


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[MessageStore]:
    with open_by_hand(tmp_path, clock) as opened:
        yield opened


def put(store: MessageStore, body: bytes = b"a", **fields: object) -> int:
    """Its physical offset."""
    (placed,) = store.put([Message("T", body, **fields)]).placed  # type: ignore[arg-type]
    return placed.physical_offset


def story(store: MessageStore, physical_offset: int) -> Story:
    return store.traces.story(store.traces.message(physical_offset))


def whats(story: Story, group: str | None = None) -> list[What]:
    return [each.what for each in story.events if group is None or each.group == group]


def receive(store: MessageStore, group: str = "g", topic: str = "T", **how: object) -> Delivery:
    received = store.groups.receive(group, topic, max_messages=1, invisible_ms=10_000, **how)  # type: ignore[arg-type]
    return received.deliveries[0]


def reader_of(story: Story, group: str = "g") -> Reader:
    (found,) = [each.reader for each in story.standings if each.group == group]
    return found


# --- of groups -----------------------------------------------------------------------------


def test_each_delivery_is_told_and_what_is_now(store: MessageStore, clock: FakeClock) -> None:
    at = put(store)
    store.groups.create("g")
    assert story(store, at).standings == []
    first = receive(store)
    told = story(store, at)
    (standing,) = told.standings
    assert (standing.reader, standing.deliveries) == (Reader.IN_FLIGHT, 1)
    assert standing.until_ms == clock.now_ms() + 10_000
    assert told.events[0].nonce == standing.nonce != 0
    clock.advance(10)
    assert reader_of(story(store, at)) is Reader.AGAIN
    second = receive(store)
    store.groups.change_invisible("g", [second.handle], 60_000)
    store.groups.give_back("g", [second.handle], 1000)
    assert reader_of(story(store, at)) is Reader.AGAIN
    clock.advance(1)
    store.groups.acknowledge("g", [receive(store).handle])
    store.groups.acknowledge("g", [first.handle])  # too late, and says nothing
    told = story(store, at)
    assert reader_of(told) is Reader.DONE
    assert whats(told) == [
        *(What.DELIVERED, What.DELIVERED, What.HELD_ON),
        *(What.GIVEN_BACK, What.DELIVERED, What.ACKNOWLEDGED),
    ]
    assert [each.delivery for each in told.events] == [1, 2, 2, 2, 3, 0]
    assert told.standings[0].deliveries == 3
    assert told.subject.now is Now.READABLE
    assert told.cursor is None


def test_what_a_filter_drops_is_passed_over(store: MessageStore) -> None:
    other, wanted = put(store, tag="b"), put(store, tag="a")
    store.groups.create("g")
    receive(store, tag_filter="a")
    assert whats(story(store, other)) == [What.PASSED]
    (standing,) = story(store, other).standings
    assert (standing.reader, standing.deliveries) == (Reader.DONE, 0)
    assert whats(story(store, wanted)) == [What.DELIVERED]


def test_a_group_by_offsets_has_read_it_or_not(store: MessageStore) -> None:
    at = put(store)
    put(store)
    store.commit_offsets("o", [("T", 0, 0)])
    assert reader_of(story(store, at), "o") is Reader.UNREAD
    for offset in (1, 2):
        store.commit_offsets("o", [("T", 0, offset)])
    told = story(store, at)
    assert whats(told) == [What.READ_AGAIN, What.READ]
    assert reader_of(told, "o") is Reader.READ
    store.commit_offsets("o", [("T", 0, 0)], allow_back=True)
    assert whats(story(store, at))[-1] is What.READ_AGAIN


def test_a_reset_and_deletions_are_told(store: MessageStore) -> None:
    at = put(store, light_queues=(LIGHT,))
    for group in ("g", "gone"):
        store.groups.create(group)
        receive(store, group)
    receive(store, "g", LIGHT)
    store.groups.reset("g", "T", [0], AtOffset(1))
    store.delete_group("gone")
    store.delete_topic(LIGHT)
    store.put([Message("T", b"b", light_queues=(LIGHT,))])  # another message at that place
    receive(store, "g", LIGHT)
    told = story(store, at)
    assert whats(told, "g") == [What.DELIVERED, What.DELIVERED, What.RESET]
    assert whats(told, "gone") == [What.DELIVERED, What.GROUP_DELETED]
    assert whats(told, "") == [What.QUEUE_DELETED]
    assert {each.group for each in told.standings} == {"g"}


def test_a_group_from_the_latest_began_behind_it(store: MessageStore) -> None:
    at = put(store)
    store.groups.create("g", SharedGroup(from_latest=True))
    assert not store.groups.receive("g", "T").deliveries
    assert reader_of(story(store, at)) is Reader.BEFORE_START


def test_groups_that_may_not_be_seen_are_not_told_of(store: MessageStore) -> None:
    at = put(store)
    for group in ("g", "h"):
        store.groups.create(group)
        receive(store, group)
    traces = store.traces
    told = traces.story(traces.message(at), sees=lambda group: group == "h")
    assert {each.group for each in told.events} == {each.group for each in told.standings} == {"h"}


def test_who_may_see_few_groups_is_told_of_them_behind_however_many_others(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces_module, "MOST_STANDINGS", 2)
    at = put(store)
    for group in ("a", "b", "c", "d", "e"):
        store.commit_offsets(group, [("T", 0, 1)])
    found = store.traces.message(at)
    told = store.traces.story(found, None, lambda group: group in ("c", "e"))
    assert [each.group for each in told.standings] == ["c", "e"]
    assert [each.group for each in store.traces.story(found).standings] == ["a", "b"]


def test_a_forged_cursor_tells_nothing_of_groups_that_may_not_be_seen(store: MessageStore) -> None:
    at = put(store)
    store.groups.create("secret")
    begun = store.bounds([(STATE_TOPIC, 0)])[0].max_offset
    store.delete_group("secret")
    cursor = pack_cursor(Cursor(begun, [], [("secret", 0, What.DELIVERED, 1)]))
    traces = store.traces
    assert traces.story(traces.message(at), cursor, lambda _: False).events == []


# --- dead letters --------------------------------------------------------------------------


def test_a_dead_letter_is_followed_there_and_back(store: MessageStore, clock: FakeClock) -> None:
    at = put(store)
    store.groups.create("g", SharedGroup(max_deliveries=1))
    receive(store)
    clock.advance(10)
    assert not store.groups.receive("g", "T").deliveries
    dead = story(store, at).events[-1]
    assert dead.what is What.DEAD
    (letter,) = store.groups.list_dead_letters("g")
    place = int(dead.message_id[-16:], 16)
    told = story(store, place)
    assert whats(told) == [What.BURIED]
    assert int(told.events[0].message_id[-16:], 16) == at
    store.groups.redrive("g", [letter.offset])
    told = story(store, place)
    assert whats(told) == [What.BURIED, What.REDRIVEN]
    again = story(store, int(told.events[-1].message_id[-16:], 16))
    assert whats(again)[0] is What.REDRIVEN
    assert int(again.events[0].message_id[-16:], 16) == place
    assert again.subject.places[0].offset == 1


@pytest.mark.parametrize("at_a_time", [1, 50_000])
def test_a_message_that_was_redriven_says_so_and_as_what(
    store: MessageStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, at_a_time: int
) -> None:
    """However many calls it takes to tell."""
    at = put(store)
    store.groups.create("g", SharedGroup(max_deliveries=1))
    store.groups.create("other")
    receive(store)
    clock.advance(10)
    assert not store.groups.receive("g", "T").deliveries
    (letter,) = store.groups.list_dead_letters("g")
    store.groups.redrive("g", [letter.offset])
    done = receive(store)
    store.groups.acknowledge("g", [done.handle])
    monkeypatch.setattr(traces_module, "MOST_RECORDS", at_a_time)
    whole = story(store, at)
    events, cursor = whole.events, whole.cursor
    while cursor is not None:
        page = store.traces.story(store.traces.message(at), cursor)
        events, cursor = [*events, *page.events], page.cursor
    assert [each.what for each in events][-2:] == [What.DEAD, What.REDRIVEN]
    last = events[-1]
    assert (last.group, last.place) == ("g", whole.subject.places[0])
    became = int(last.message_id[-16:], 16)
    assert whats(story(store, became))[-1] is What.ACKNOWLEDGED
    hidden = store.traces.story(store.traces.message(at), sees=lambda group: group != "g")
    assert hidden.events == []


def test_a_message_whose_dead_letter_was_deleted_says_so(
    store: MessageStore, clock: FakeClock
) -> None:
    at = put(store)
    store.groups.create("g", SharedGroup(max_deliveries=1))
    receive(store)
    clock.advance(10)
    assert not store.groups.receive("g", "T").deliveries
    (letter,) = store.groups.list_dead_letters("g")
    store.groups.delete_dead_letters("g", [letter.offset])
    assert whats(story(store, at))[-2:] == [What.DEAD, What.DELETED]


# --- what waits ----------------------------------------------------------------------------


def delayed(store: MessageStore, clock: FakeClock) -> str:
    due_ms = clock.now_ms() + 5000
    return store.timers.put([Message("T", b"a")] * 2, [due_ms] * 2).handles[1]


def test_a_delayed_message_is_followed_to_what_it_became(
    store: MessageStore, clock: FakeClock
) -> None:
    handle = delayed(store, clock)
    told = store.traces.story(store.traces.timer("T", handle))
    assert told.subject.now is Now.PENDING
    assert told.subject.due_ms == clock.now_ms() + 5000
    assert whats(told) == [What.TIMER_SET]
    clock.advance(5)
    fire(store)
    told = store.traces.story(store.traces.timer("T", handle))
    assert told.subject.now is Now.ENDED
    assert whats(told) == [What.TIMER_SET, What.FIRED]
    came = story(store, int(told.events[-1].message_id[-16:], 16))
    assert came.subject.places[0] == ("T", 0, 1)
    assert whats(came) == [What.TIMER_SET, What.FIRED]
    # By the id of the record that waited as well.
    assert story(store, int(came.events[0].message_id[-16:], 16)).events == told.events


def test_a_recall_is_told(store: MessageStore, clock: FakeClock) -> None:
    handle = delayed(store, clock)
    store.timers.recall("T", [handle])
    assert whats(store.traces.story(store.traces.timer("T", handle))) == [
        What.TIMER_SET,
        What.RECALLED,
    ]


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_followed(store: MessageStore, clock: FakeClock, *, commit: bool) -> None:
    store.create_topics([("T", 1)])
    transaction = store.halves.begin(Message("T", b"a"), "p")
    clock.advance(10)
    (check,) = store.halves.due("p")
    store.halves.checked([check.half])
    told = store.traces.story(store.traces.transaction(transaction))
    assert told.subject.now is Now.OPEN
    assert told.subject.group == "p"
    assert whats(told) == [What.BEGUN, What.CHECKED]
    store.halves.end(transaction, commit=commit)
    told = store.traces.story(store.traces.transaction(transaction))
    assert whats(told)[2:] == [What.COMMITTED if commit else What.ROLLED_BACK]
    if commit:
        came = story(store, int(told.events[-1].message_id[-16:], 16))
        assert whats(came) == [What.BEGUN, What.COMMITTED]


def test_a_transaction_that_was_handed_back_is_told_of(store: MessageStore) -> None:
    name = store.halves.begin(Message("T", b"a"), "p")
    store.handing_back.halves("RMQ_SYS_TRANS_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC")
    found = store.traces.transaction(name)
    told = store.traces.story(found)
    assert (told.subject.now, whats(told)) == (Now.ENDED, [What.BEGUN, What.HANDED_BACK])
    id_there = told.events[-1].message_id
    (there,) = map(unpack_record, store.pull("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0).records)
    assert parse_message_id(id_there)[1] == there.physical_offset
    assert whats(story(store, there.physical_offset)) == [What.BEGUN, What.HANDED_BACK]


# --- bounds --------------------------------------------------------------------------------


def test_a_long_story_comes_in_pages(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces_module, "MOST_S", 1e9)
    at = put(store, light_queues=(LIGHT,))
    store.groups.create("g", SharedGroup(max_deliveries=1000))
    store.delete_topic(LIGHT)
    for number in range(400):
        received = receive(store, topic="T")
        if number < 399:
            store.groups.give_back("g", [received.handle], 0)
        else:
            store.groups.acknowledge("g", [received.handle])
        if number % 100 == 0:
            store.put([Message("T", b"b", light_queues=(LIGHT,))])
            receive(store, "h", LIGHT)
            store.delete_topic(LIGHT)
    whole = story(store, at)
    assert whole.cursor is None
    assert [each.deliveries for each in whole.standings] == [400]
    monkeypatch.setattr(traces_module, "MOST_RECORDS", 1)
    events, cursor, pages = [], None, 0
    while True:
        page = store.traces.story(store.traces.message(at), cursor)
        events += page.events
        cursor, pages = page.cursor, pages + 1
        assert [each.deliveries for each in page.standings] == [400 if cursor is None else None]
        if cursor is None:
            break
    assert pages > 2
    assert events == whole.events
    assert len(events) == 801


@pytest.mark.parametrize(
    "cursor",
    [
        *(
            b"x",
            b"[]",
            b"[1]",
            b"[99,[],[],[]]",
            b"[-1,[],[],[]]",
            b"[0,[7],[],[]]",
            b"[0,7,[],[]]",
        ),
        *(
            b'[0,[],[["g",0,99,1]],[]]',
            b'[0,[],[["\\ud800",0,1,1]],[]]',
            b"[0,[],[[1,0,1,1]],[]]",
            b'[0,[],[["g",0,1]],[]]',
            b'[0,[],[["g",0,1,-1]],[]]',
            b'[0,[],[["g",0,1,2147483648]],[]]',
            b"[true,[],[],[]]",
            b'[0,[],[],[["g",0,-1]]]',
            b'[0,[],[],[["g",7,0]]]',
            b"[0,[],[],[[1,0,0]]]",
            b"[" * 90_000,
        ),
    ],
)
def test_a_cursor_that_is_none_is_refused(store: MessageStore, cursor: bytes) -> None:
    found = store.traces.message(put(store))
    with pytest.raises(InvalidArgumentError, match="page_token"):
        store.traces.story(found, cursor)


def test_what_the_log_has_no_longer_is_said(store: MessageStore, clock: FakeClock) -> None:
    at = put(store)
    handle = delayed(store, clock)
    for wrong in (at + 1, 1 << 40):
        with pytest.raises(MessageNotFoundError):
            store.traces.message(wrong)
    with pytest.raises(InvalidArgumentError, match="handle"):
        store.traces.timer("U", handle)
    for topic in (TIMER_TOPIC, HALVES_TOPIC):
        assert topic not in {each.topic for each in story(store, at).subject.places}


# --- a model -------------------------------------------------------------------------------

GROUPS = ("g", "h")


@pytest.mark.parametrize("seed", seeds(1, 4))
def test_a_trace_is_what_a_model_recorded(tmp_path: Path, seed: int) -> None:
    """Receives, acknowledgements, returns, renewals, resets, with a kill now and then."""
    rng, clock = random.Random(seed), FakeClock()
    root = tmp_path / "store"
    opened = open_small(root, clock)
    for group in GROUPS:
        opened.groups.create(group, SharedGroup(max_deliveries=4))
    opened.create_topics([("T", 2)])
    messages: dict[tuple[int, int], int] = {}
    model: dict[tuple[str, int, int], list[tuple[What, int]]] = {}
    held: dict[str, list[Delivery]] = {group: [] for group in GROUPS}

    def note(group: str, one: Delivery, what: What, delivery: int) -> None:
        model.setdefault((group, one.queue_id, one.queue_offset), []).append((what, delivery))

    for _ in range(200):
        group = rng.choice(GROUPS)
        action = rng.choice("pprrrraaaagkxo")
        if action == "p":
            for placed in opened.put([Message("T", b"m", rng.randrange(2))] * 3).placed:
                messages[placed.queue_id, placed.queue_offset] = placed.physical_offset
        elif action == "r":
            before = {each.offset for each in opened.groups.list_dead_letters(group)}
            received = opened.groups.receive(group, "T", max_messages=5, invisible_ms=5000)
            for one in received.deliveries:
                note(group, one, What.DELIVERED, one.deliveries)
                held[group].append(one)
            for letter in opened.groups.list_dead_letters(group):
                if letter.offset not in before:
                    where = group, letter.queue_id, letter.queue_offset
                    model[where].append((What.DEAD, 0))
        elif action in "agx" and held[group]:
            one = held[group].pop(rng.randrange(len(held[group])))
            if action == "a":
                answered = opened.groups.acknowledge(group, [one.handle])
                what, delivery = What.ACKNOWLEDGED, 0
            elif action == "g":
                answered = opened.groups.give_back(group, [one.handle], 100)
                what, delivery = What.GIVEN_BACK, one.deliveries
            else:
                answered = opened.groups.change_invisible(group, [one.handle], 9000)
                what, delivery = What.HELD_ON, one.deliveries
            if answered.outcomes[0].name == "DONE":
                note(group, one, what, delivery)
        elif action == "k":
            image = tmp_path / f"store{len(list(tmp_path.iterdir()))}"
            shutil.copytree(root, image)  # what a killed process leaves
            opened.close()
            root, opened = image, open_small(image, clock)
        elif action == "o" and messages and rng.random() < 0.2:
            queue_id, offset = rng.choice(list(messages))
            ((low, _),) = opened.bounds([("T", queue_id)])
            if offset >= low and any(key[1] == queue_id and key[0] == group for key in model):
                opened.groups.reset(group, "T", [queue_id], AtOffset(offset))
                for number, at in messages:
                    if number == queue_id:
                        model.setdefault((group, queue_id, at), []).append((_reset(at, offset), 0))
        clock.advance(rng.random() * 1.5)
    counts = dict.fromkeys(What, 0)
    for (queue_id, offset), at in messages.items():
        told = story(opened, at)
        for group in GROUPS:
            expected = model.get((group, queue_id, offset), [])
            found = [(each.what, each.delivery) for each in told.events if each.group == group]
            assert found == expected, (group, queue_id, offset)
            for what, _ in found:
                counts[what] += 1
            for standing in told.standings:
                if standing.group == group:
                    _check(standing.reader, found, standing.until_ms, clock.now_ms())
    opened.close()
    assert counts[What.DELIVERED] > 50
    assert counts[What.ACKNOWLEDGED] > 5


def _check(reader: Reader, found: list[tuple[What, int]], until_ms: int, now_ms: int) -> None:
    """That the rows say what the events do."""
    last = found[-1][0] if found else None
    if last in (What.ACKNOWLEDGED, What.DEAD):
        assert reader is Reader.DONE
    elif last is What.GIVEN_BACK:
        assert reader is Reader.AGAIN
    elif last in (What.DELIVERED, What.HELD_ON):
        assert reader is (Reader.IN_FLIGHT if now_ms < until_ms else Reader.AGAIN)
    else:
        assert reader in (Reader.NOT_RECEIVED, Reader.DONE)


def _reset(at: int, to: int) -> What:
    return What.RESET if at < to else What.RESET_BACK
