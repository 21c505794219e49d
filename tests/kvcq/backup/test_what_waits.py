"""A store that is restored to a point has what waited at that point, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq.backup import Cut, open_place, restore, take_backup
from store.format.record import unpack_record
from store.held import Recall
from store.lite import Action, queue_of
from store.message import Message
from store.metadata import LiteGroup, SharedGroup
from tests.support.backups import queues_of
from tests.support.checked import assert_whole
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import differences
from tests.support.stores import bodies, open_small

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore

HOUR_MS = 3_600_000


def delivered(store: MessageStore, topic: str) -> list[bytes]:
    ((low, _),) = store.bounds([(topic, 0)])
    return bodies(list(store.pull(topic, 0, low, max_messages=100).records))


def heard(store: MessageStore) -> list[bytes]:
    """What the lite group has still to get."""
    store.lite.sync("lite", "after", Action.ADD, ["a", "b"])
    found = store.lite.receive("lite", "after").deliveries
    return [unpack_record(each.record).body for each in found]


@pytest.mark.parametrize("segments_only", [False, True])
def test_what_waits_is_that_of_the_cut(tmp_path: Path, *, segments_only: bool) -> None:
    clock = FakeClock()
    with open_small(tmp_path / "store", clock) as store:
        store.timers.firing.stop()
        store.create_topics([("later", 1), ("decided", 1)])
        store.lite.make("p", HOUR_MS)
        store.groups.create("lite", SharedGroup(lite=LiteGroup("p"), invisible_ms=1000))
        due = clock.now_ms() + HOUR_MS
        timers = [Message("later", body) for body in (b"fires", b"recalled", b"waits")]
        handles = store.timers.put(timers, [due, due, due + HOUR_MS]).handles
        halves = [store.halves.begin(Message("decided", body), "g") for body in (b"1", b"2", b"3")]
        store.put(
            [
                Message("p", name, light_queues=(queue_of("p", name.decode()),))
                for name in (b"a", b"b")
            ]
        )
        store.lite.sync("lite", "c", Action.ADD, ["a"])
        (got,) = store.lite.receive("lite", "c").deliveries
        point = store.log.appended_offset
        # All of that becomes something else.
        store.groups.acknowledge("lite", [got.handle])
        store.lite.delete("p", ["b"])
        store.timers.recall("later", [handles[1]])
        store.halves.end(halves[0], commit=True)
        store.halves.end(halves[1], commit=False)
        clock.advance(3601)
        assert store.timers.firing.fire() == 1
        store.timers.put([Message("later", b"new")], [clock.now_ms() + HOUR_MS])
        store.halves.begin(Message("decided", b"4"), "g")
        taken = take_backup(store, queues_of(store), str(tmp_path / "b"), clock=clock)
    place = open_place(str(tmp_path / "b"))
    root = tmp_path / "restored"
    restore(place, taken.backup, root, Cut(until_offset=point), segments_only=segments_only)
    with open_small(root, clock) as store:
        store.timers.firing.stop()
        store.wait_visible()
        # What is due by now was put as soon as the store was opened, or is in a moment.
        while store.timers.firing.fire():
            pass
        assert delivered(store, "later") == [b"fires", b"recalled"]
        assert store.timers.recall("later", handles).outcomes == [
            *[Recall.NOT_WAITING] * 2,
            Recall.RECALLED,
        ]
        assert [one.transaction_id for one in store.halves.list()[0]] == halves
        store.halves.end(halves[1], commit=True)  # nobody decided otherwise by then
        assert delivered(store, "decided") == [b"2"]
        assert heard(store) == [b"a", b"b"]
        assert store.lite.expiry_ms("p") == HOUR_MS
        assert differences(store) == []
    assert_whole(root)


def fill(store: MessageStore, segments: int) -> None:
    for _ in range(segments):
        store.put([Message("filler", bytes(20_000)) for _ in range(4)])


def test_a_cut_tells_what_is_only_in_the_log_behind_it(tmp_path: Path) -> None:
    """A delayed message whose segment went was appended again behind the cut."""
    clock = FakeClock()
    with open_small(tmp_path / "store", clock, reserved_hours=5) as store:
        store.create_topics([("later", 1)])
        store.timers.put([Message("later", b"x")], [clock.now_ms() + 24 * 30 * HOUR_MS])
        fill(store, 3)
        clock.advance(4 * 3600)
        store.snapshots.take()
        fill(store, 2)
        point = store.log.appended_offset
        fill(store, 2)
        clock.advance(2 * 3600)
        with store._upkeep.checkpoints.lock:
            store._upkeep.checkpoints.flush()
        assert store._services.retention.run_once(now=True)
        taken = take_backup(store, queues_of(store), str(tmp_path / "b"), clock=clock)
    place = open_place(str(tmp_path / "b"))
    done = restore(place, taken.backup, tmp_path / "cut", Cut(until_offset=point))
    assert done.held_from is not None
    assert point < done.held_from <= taken.backup.end_offset
    whole = restore(place, taken.backup, tmp_path / "all", Cut(until_offset=done.held_from))
    assert whole.held_from is None
    assert restore(place, taken.backup, tmp_path / "uncut").held_from is None
    with open_small(tmp_path / "all", clock) as store:
        clock.advance(31 * 24 * 3600)
        while store.timers.firing.fire():
            pass
        assert delivered(store, "later") == [b"x"]
    with open_small(tmp_path / "cut", clock) as store:
        again = take_backup(store, queues_of(store), str(tmp_path / "again"), clock=clock)
    place = open_place(str(tmp_path / "again"))
    # What was lost by the first cut is not lost by another one.
    cut = Cut(until_offset=done.end_offset)
    assert restore(place, again.backup, tmp_path / "cut-again", cut).held_from is None
