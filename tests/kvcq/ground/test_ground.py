"""The store against the model of one log and its states: G1 to G6, in any order.

* G1 from each kept snapshot, the log behind it gives all rows of the database, byte for byte.
* G2 without its database, lost or damaged at any moment, every call answers the same.
* G3 nor when segments were dropped before.
* G4 what is ahead of the log after a loss of power is never used.
* G5 a restore to a point is a store that was stopped there; below the lowest snapshot there is
  none, it is refused.
* G6 a kill in the middle of a snapshot or a removal does no harm.
HYPOTHESIS_PROFILE=nightly runs it longer.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import kvcq.snapshots.snapshot
from kvcq.backup import Cut, open_place, restore, take_backup
from kvcq.snapshots import DIRECTORY, snapshots_in
from kvcq.snapshots.snapshot import Snapshot
from store.base import SystemClock
from store.config import FlushMode
from store.errors import InvalidArgumentError
from store.format.record import unpack_record
from store.message import Message
from store.state import STATE_TOPIC
from tests.crash.images import power_loss
from tests.kvcq.ground.model import Model, State
from tests.support.backups import queues_of
from tests.support.checked import assert_whole
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import differences
from tests.support.stores import open_small
from tests.support.tree import copy_open

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.message_store import MessageStore

pytestmark = pytest.mark.crash

QUEUES = 2
TOPICS = ("A", "B", "C")
LIGHT = ("%LMQ%x", "%LMQ%y")
NAMES = TOPICS + LIGHT
GROUPS = ("g", "h")
SEGMENT = 8192
#: Ahead of the wall clock, by which RocksDB's filter goes.
START_MS = SystemClock().now_ms() + 3_600_000

messages = st.builds(
    Message,
    topic=st.sampled_from(TOPICS),
    body=st.binary(max_size=4) | st.binary(min_size=1500, max_size=1502),
    queue_id=st.integers(0, QUEUES - 1),
    keys=st.sampled_from([(), ("k",)]),
    light_queues=st.sampled_from([(), LIGHT[:1], LIGHT[1:], LIGHT]),
)


def lose_database(root: Path) -> None:
    shutil.rmtree(root / "kvcq")


def lose_copies_too(root: Path) -> None:
    lose_database(root)
    for path in (root / DIRECTORY).glob("*/copy"):
        shutil.rmtree(path)


def damage_tables(root: Path) -> None:
    """Through the links, those of the copies as well."""
    for path in (root / "kvcq").glob("*.sst"):
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.write(b"x" * size)


def damage_manifest(root: Path) -> None:
    for path in (root / "kvcq").glob("MANIFEST-*"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


LOSSES = {each.__name__: each for each in (lose_database, lose_copies_too, damage_manifest)}


class GroundMachine(RuleBasedStateMachine):
    """Steps on a real store in a temporary directory."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="kvcq-ground-"))
        self.number = 0
        self.clock = FakeClock(START_MS)
        self.model = Model()
        self.mode = FlushMode.ASYNC

    @initialize(mode=st.sampled_from(FlushMode))
    def begin(self, mode: FlushMode) -> None:
        self.mode = mode
        self.store = self._open(self.root)

    @property
    def root(self) -> Path:
        return self.directory / str(self.number)

    def _open(self, root: Path) -> MessageStore:
        return open_small(
            root,
            self.clock,
            segment_bytes=SEGMENT,
            default_queue_count=QUEUES,
            hot_queue_limit=16,
            reserved_hours=1,
            expiry_margin_s=2,
            flush_mode=self.mode,
        )

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        shutil.rmtree(self.directory)

    @property
    def state(self) -> State:
        return State.of(self.model.log)

    def _say(self, *what: Any) -> None:  # noqa: ANN401
        """The record of the state that was appended last says that."""
        self.store.wait_visible()
        last = self.store.queues.next_offsets([(STATE_TOPIC, 0)])[0] - 1
        [(_, unit)] = self.store.queues.read_units(STATE_TOPIC, 0, last, 1)
        at = unit.physical_offset
        self.model.append((at, at + unit.record_size, *what))

    def _said(self, call: Callable[[], object], *what: Any) -> None:  # noqa: ANN401
        """The call appends a record that says that, or what it asks for is so already."""
        end = self.store.log.appended_offset
        before = self.state
        call()
        if self.store.log.appended_offset > end:
            self._say(*what)
        else:
            assert before.then([(end, end, *what)]) == before

    def _is_acknowledged(self, *, is_administration: bool = False) -> None:
        """No loss of power takes it from here on: in ASYNC mode what administers alone."""
        if is_administration or self.mode is FlushMode.SYNC:
            assert self.store.flushed_offset >= self.model.end

    # --- what users do -------------------------------------------------------------------------

    @rule(batch=st.lists(messages, min_size=1, max_size=6))
    def put(self, batch: list[Message]) -> None:
        state = self.state
        missing = dict.fromkeys(each.topic for each in batch if each.topic not in state.topics)
        done = self.store.put(batch)
        if missing:
            self._say("made", tuple((name, QUEUES) for name in missing))
        placed = []
        for message, place in zip(batch, done.placed, strict=True):
            light = tuple(dict.fromkeys(message.light_queues))
            body, at = message.body, place.physical_offset
            placed.append((message.topic, message.queue_id, body, light, at))
        self.model.append((placed[0][4], done.end_offset, "put", tuple(placed)))
        self._is_acknowledged()
        state = self.state
        for message, place in zip(batch, done.placed, strict=True):
            queue = state.queues[message.topic, message.queue_id]
            assert queue[place.queue_offset] == (place.physical_offset, message.body)

    @rule(topic=st.sampled_from(TOPICS))
    def create(self, topic: str) -> None:
        if topic not in self.state.topics:
            self.store.create_topics([(topic, QUEUES)])
            self._say("made", ((topic, QUEUES),))
            self._is_acknowledged(is_administration=True)

    @rule(topic=st.sampled_from(TOPICS), count=st.integers(0, 5))
    def keep(self, topic: str, count: int) -> None:
        if topic in self.state.topics:
            self._said(lambda: self.store.keep(topic, messages=count), "keeps", topic, count)

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        state = self.state
        if name in state.topics or ((name, 0) in state.queues and name in LIGHT):
            self.store.delete_topic(name)
            self._say("ended", name)
            self._is_acknowledged(is_administration=True)

    @rule(
        group=st.sampled_from(GROUPS),
        name=st.sampled_from(NAMES),
        queue=st.integers(0, QUEUES - 1),
        part=st.integers(0, 3),
    )
    def commit(self, group: str, name: str, queue: int, part: int) -> None:
        state = self.state
        queue = 0 if name in LIGHT else queue
        if name in state.topics or (name, queue) in state.queues:
            offset = state.bounds(name, queue, 0)[1] * part // 3
            place = (name, queue, offset)
            self.store.commit_offsets(group, [place], allow_back=True)
            self._say("committed", group, *place)
            self._is_acknowledged()

    @rule(group=st.sampled_from(GROUPS))
    def end_group(self, group: str) -> None:
        if group in self.state.groups:
            self.store.delete_group(group)
            self._say("group ended", group)
            self._is_acknowledged(is_administration=True)

    # --- what the store does by itself ---------------------------------------------------------

    @rule()
    def flush(self) -> None:
        self.store.flush()

    @rule()
    def rocksdb_flushes(self) -> None:
        """Ahead of the log: a loss of power leaves it so."""
        self.store.queues.flush()

    @rule(is_looked_after=st.booleans())
    def snapshot(self, is_looked_after: bool) -> None:
        self.store.snapshots.take()
        if is_looked_after:
            self.store.snapshots.look()

    @rule()
    def expire(self) -> None:
        self.clock.advance(4000)
        self.store.flush()
        self.store._services.retention.run_once(now=True)
        self.model.start = self.store.log.start_offset

    # --- what happens to it --------------------------------------------------------------------

    def _next_life(self) -> Path:
        self.number += 1
        return self.root

    @rule()
    def stop(self) -> None:
        self.store.close()
        assert_whole(self.root)
        self.store = self._open(self.root)

    @rule(loss=st.sampled_from([None, *LOSSES]))
    def kill(self, loss: str | None) -> None:
        """The page cache stays, so the files as they are."""
        old = self.store
        image = self._next_life()
        copy_open(old.config.root, image)
        self._go_on(old, image, loss)
        assert self.store.log.appended_offset >= self.model.end, "acknowledged and lost"

    @rule(seed=st.integers(0, 1 << 16), loss=st.sampled_from([None, None, *LOSSES]))
    def lose_power(self, seed: int, loss: str | None) -> None:
        old = self.store
        image = self._next_life()
        self.model.flushed = power_loss(old, image, random.Random(seed))
        self._go_on(old, image, loss)
        self.model.cut(self.store.log.appended_offset)

    @rule(
        what=st.sampled_from(["in a snapshot", "before its seal", "as a segment goes"]),
        is_power=st.booleans(),
        seed=st.integers(0, 1 << 16),
    )
    def kill_in_the_middle(self, what: str, is_power: bool, seed: int) -> None:
        old = self.store
        image = self._next_life()
        taken: list[int] = []

        def killed(*_: object) -> None:
            if not taken:
                if is_power:
                    taken.append(power_loss(old, image, random.Random(seed)))
                else:
                    copy_open(old.config.root, image)
                    taken.append(old.log.appended_offset)
            raise OSError("killed")

        with pytest.MonkeyPatch.context() as patch, suppress(OSError):
            if what == "in a snapshot":
                patch.setattr(kvcq.snapshots.snapshot, "fsync_directory", killed)
                old.snapshots.take()
            elif what == "before its seal":
                patch.setattr(Snapshot, "seal", killed)
                old.snapshots.take()
            else:
                self.clock.advance(4000)
                old.flush()
                drop = old.log._segments.drop_first

                def dropped() -> None:
                    drop()
                    killed()

                patch.setattr(old.log._segments, "drop_first", dropped)
                old._services.retention.run_once(now=True)
        if not taken:  # there was nothing to do
            killed_now: Callable[[], None] = lambda: copy_open(old.config.root, image)  # noqa: E731
            killed_now()
            taken.append(old.log.appended_offset)
        self.model.flushed = taken[0] if is_power else 0
        self._go_on(old, image, None)
        self.model.start = self.store.log.start_offset
        self.model.cut(self.store.log.appended_offset)

    def _go_on(self, old: MessageStore, image: Path, loss: str | None) -> None:
        """In the next life; of the image something more is lost."""
        with suppress(OSError):
            old.close()
        shutil.rmtree(old.config.root)
        assert_whole(image)
        if loss is not None:
            LOSSES[loss](image)
        self.store = self._open(image)

    @rule(loss=st.sampled_from(list(LOSSES)))
    def lose_the_database_of_a_stopped_store(self, loss: str) -> None:
        self.store.close()
        LOSSES[loss](self.root)
        self.store = self._open(self.root)

    @rule()
    def damage_tables_that_snapshots_share(self) -> None:
        self.store.snapshots.take()
        self.store.close()
        damage_tables(self.root)
        self.store = self._open(self.root)

    @rule(part=st.integers(0, 12), segments_only=st.booleans())
    def restore_to_a_point(self, part: int, segments_only: bool) -> None:
        """Aside; the store goes on as it was."""
        place, root = self.directory / "backups", self.directory / "restored"
        taken = take_backup(self.store, queues_of(self.store), str(place), clock=self.clock)
        first = [
            each for each in self.model.log if each[2] == "put" and each[0] >= self.model.start
        ]
        if first:
            self._restore(taken.backup, place, root, first[0][1], part, segments_only)
        shutil.rmtree(place)

    def _restore(
        self,
        backup: Any,  # noqa: ANN401
        place: Path,
        root: Path,
        first: int,
        part: int,
        segments_only: bool,
    ) -> None:
        ends = [each[1] for each in self.model.log if each[1] >= first]
        at = ends[min(part * len(ends) // 12, len(ends) - 1)]
        points = [each.point for each in snapshots_in(self.root / DIRECTORY)]
        is_known = self.model.start == 0 or any(point <= at for point in points)
        cut = Cut(until_offset=at)
        if not is_known:
            with pytest.raises(
                InvalidArgumentError, match="cannot restore topics and groups as of"
            ):
                restore(open_place(str(place)), backup, root, cut, segments_only=segments_only)
            assert not root.exists()
            return
        restore(open_place(str(place)), backup, root, cut, segments_only=segments_only)
        with self._open(root) as store:
            records = [each for each in self.model.log if each[1] <= at]
            assert_same(store, State.of(records), self.model.start)
            assert differences(store) == []
        assert_whole(root)
        shutil.rmtree(root)

    # --- what must hold ------------------------------------------------------------------------

    @invariant()
    def the_store_is_what_its_log_says(self) -> None:
        if hasattr(self, "store"):
            assert_same(self.store, self.state, self.model.start)

    @invariant()
    def each_snapshot_and_the_log_give_the_database(self) -> None:
        if hasattr(self, "store"):
            assert differences(self.store) == []


def assert_same(store: MessageStore, state: State, log_start: int) -> None:
    store.wait_visible()
    assert {
        topic.name: (topic.queue_count, topic.created_offset, topic.retention.messages)
        for topic in store.list_topics("", None, 99)
    } == {name: tuple(topic) for name, topic in state.topics.items()}
    assert {
        group: {row[:2]: row[2] for row in store.list_committed(group, None, 99)}
        for group in store.list_groups(None, 99)
    } == state.groups
    light = {name for name, _ in state.queues if name in LIGHT}
    assert set(store.list_light_queues("", None, 99)) == light
    for name in [*state.topics, *light]:
        for queue in range(state.topics[name].queues if name in state.topics else 1):
            low, high = state.bounds(name, queue, log_start)
            assert store.bounds([(name, queue)]) == [(low, high)], (name, queue)
            pulled = store.pull(name, queue, low, max_messages=999, max_bytes=1 << 30)
            found = [unpack_record(record) for record in pulled.records]
            wanted = state.queues.get((name, queue), [])[low:]
            assert [(each.physical_offset, each.body) for each in found] == wanted, (name, queue)


_NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
TestGround = GroundMachine.TestCase
TestGround.settings = settings(
    max_examples=300 if _NIGHTLY else 8, stateful_step_count=50 if _NIGHTLY else 15
)
