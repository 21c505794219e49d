"""Stores on file queues, messages to put into them, and what must hold of them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.engine.protocol import KvBatch
from kvcq.tables.dispatch_batch import build_batch
from kvcq.tables.keys import UNITS
from migration.columnar import BulkPlan
from migration.columnar.bulk_worker import BulkWorker
from migration.migrator import Migrator
from migration.opening import Opened, open_any
from migration.sides.double import DoubleQueueStore
from migration.state.phase import Phase
from migration.state.state import FileLayout, MigrationState, write_state
from migration.steps.live import LiveMigration
from store.base import no_progress
from store.config import StoreConfig
from store.format.record import unpack_record
from store.light_queue import LMQ_PREFIX
from store.message import Message

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kvcq.inspect import Finding
    from migration.columnar.liveness import Liveness
    from migration.jobs import Job
    from migration.sides import Side, SideStore
    from migration.state import SideName
    from store.base import Clock, Progress
    from store.consume_queue import DispatchRequest
    from store.message_store import MessageStore

LAYOUT = FileLayout(units_per_file=1024, index_slots=1009, index_entries=5000)
SEGMENT_BYTES = 1 << 20
TOPICS = ("orders", "payments", "audit-eu", "audit-us")
LIGHT = f"{LMQ_PREFIX}device-1"
WAIT_S = 60.0
ALL_KEYS = 1  # one message in this many


def config(root: Path, **settings: object) -> StoreConfig:
    values = {
        "segment_bytes": SEGMENT_BYTES,
        "default_queue_count": 2,
        "preallocate": False,
        "clean_interval_s": 1e6,
        **settings,
    }
    return StoreConfig(root=root, **values)  # type: ignore[arg-type] # checked by the config


def open_store(
    config: StoreConfig, *, clock: Clock | None = None, progress: Progress = no_progress
) -> MessageStore:
    """Any store; `live` finds its migration."""
    return open_any(config, clock=clock, progress=progress).store


def make_on_files(root: Path) -> None:
    """An empty store in state FILES, as one that was taken over."""
    open_store(config(root)).close()
    (root / "consumequeue").mkdir()
    state = MigrationState(Phase.FILES, layout=LAYOUT)
    write_state(root, state)


def messages(first: int, count: int) -> list[Message]:
    """Messages `first` and on: every topic, tags, keys, light queues; the body is the number."""
    return [
        Message(
            topic=TOPICS[number % len(TOPICS)],
            body=b"%08d" % number,
            queue_id=number // len(TOPICS) % 2,
            tag=f"tag{number % 3}" if number % 2 else "",
            keys=(f"key-{number}", f"group-{number % 7}") if number % 3 == 0 else (),
            light_queues=(LIGHT,) if number % 5 == 0 else (),
        )
        for number in range(first, first + count)
    ]


def sorter(
    root: Path,
    output: Path,
    liveness: Liveness,
    *,
    skip_damaged: bool = False,
) -> BulkWorker:
    """What makes sorted files of the log in `root`, all in one piece."""
    plan = BulkPlan(
        commitlog=root / "commitlog",
        segment_bytes=SEGMENT_BYTES,
        start=0,
        piece_bytes=1 << 40,
        output=output,
        liveness=liveness,
        skip_damaged=skip_damaged,
    )
    return BulkWorker(plan)


def live(store: MessageStore) -> LiveMigration:
    assert isinstance(store.queues, DoubleQueueStore)
    found = store.queues._attendant
    assert isinstance(found, LiveMigration)
    return found


def side_of(store: MessageStore, name: SideName) -> Side:
    """The side, which is in use."""
    side = live(store).double.side(name)
    assert side is not None
    return side


def add_units(store: SideStore, requests: Sequence[DispatchRequest]) -> None:
    """Units that dispatch would not write, of records that are dispatched already."""
    if isinstance(store, KvConsumeQueueStore):
        store._engine.write(KvBatch(puts={UNITS: build_batch(requests, 0).puts[UNITS]}))
    else:
        store.dispatch(requests, 0)


def migrator(store: MessageStore) -> Migrator:
    """For a store that has a migration."""
    return Migrator(Opened(store, live(store)))


def done(job: Job | None) -> None:
    """The job, if there is one, ends well."""
    if job is not None:
        assert job.wait(WAIT_S), job.view()
        assert job.error is None, job.error


def settle(store: MessageStore) -> None:
    """What an opening goes on with by itself is done."""
    filling = live(store).filling
    if filling is not None:
        done(filling)


def differences(store: MessageStore) -> list[Finding]:
    """What a verification of everything finds."""
    done(live(store).verify(ALL_KEYS))
    return list(live(store).differences)


def advance(store: MessageStore, until: Phase) -> None:
    """Step by step from FILES on to a phase."""
    order = [Phase.FILES, Phase.DOUBLE_WRITE, Phase.VERIFIED, Phase.ROCKSDB, Phase.FINISHED]
    settle(store)
    while live(store).state.phase is not until:
        match live(store).state.phase:
            case Phase.FILES:
                done(live(store).start())
            case Phase.DOUBLE_WRITE:
                assert differences(store) == []
            case Phase.VERIFIED:
                live(store).cutover()
            case _:
                live(store).finish()
        assert live(store).state.phase in order


def read_queue(store: MessageStore, topic: str, queue_id: int) -> list[int]:
    """Numbers of the messages in a queue, from its min to its max."""
    at, high = store.bounds([(topic, queue_id)])[0]
    numbers = []
    while at < high:
        pulled = store.pull(topic, queue_id, at, max_messages=1000)
        assert pulled.queue_offsets == list(range(at, pulled.next_offset))
        numbers += [int(unpack_record(record).body) for record in pulled.records]
        at = pulled.next_offset
    return numbers


def check_messages(store: MessageStore, acknowledged: int) -> int:
    """Every message below `acknowledged` is read exactly once, in order, and by its key.

    Messages beyond may be there, without a gap; returns how many there are.
    """
    # A put is visible shortly after it returns, when another thread dispatches at that moment.
    assert store._services.reput.dispatched.wait_for(store.log.appended_offset, 60)
    numbers: list[int] = []
    for topic in TOPICS:
        for queue_id in range(2):
            found = read_queue(store, topic, queue_id)
            assert found == sorted(found)
            numbers += found
    assert Counter(numbers) == Counter(range(len(numbers)))
    assert len(numbers) >= acknowledged
    if len(numbers) > 0:
        light = read_queue(store, LIGHT, 0)
        assert light == list(range(0, len(numbers), 5))
    for number in range(0, len(numbers), 300):
        topic = TOPICS[number % len(TOPICS)]
        page = store.query(topic, f"key-{number}")
        assert [int(unpack_record(record).body) for record in page.records] == [number]
    return len(numbers)


def spoil_a_file_unit(root: Path) -> None:
    """Another tag code, in the queue files."""
    first = min((root / "consumequeue" / "orders" / "0").iterdir())
    with first.open("r+b") as file:
        file.seek(3 * 20 + 12)
        file.write(b"\1" * 8)  # its tag code
