"""The initial state of a store that is taken over: its topics, groups and offsets.

The log has no records of them, and state records from before an earlier release no longer count. So
they are written to a sealed snapshot at the log's end.
"""

from __future__ import annotations

import shutil
from contextlib import closing
from itertools import groupby
from typing import TYPE_CHECKING

from kvcq.engine import KvBatch
from kvcq.engine.rocks import DERIVED, RocksEngine
from kvcq.snapshots import DIRECTORY, Snapshots
from kvcq.state_store import KvStateStore
from kvcq.tables import STATE
from migration.broker_config import TAKEN_GROUP, settings_of
from migration.waiting import RETRY_TOPICS
from store.log import SegmentSet
from store.metadata import TopicConfig
from store.state import (
    STATE_TOPIC,
    Changes,
    Committed,
    Entry,
    GroupMade,
    LiteTopicsOf,
    Reset,
    changes_of,
    dead_key,
    pack_group,
    pack_offset,
    pack_topic,
    topic_key,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from migration.plan import Inventory
    from store.base import Clock
    from store.store_dir import StoreDir

_PAGE = 10_000


def make_state(directory: StoreDir, inventory: Inventory, clock: Clock) -> None:
    """Write topics, with the highest known number of queues, and committed offsets to the database
    and a snapshot, and record that the state begins there. Replaces the result of an interrupted
    attempt. Durable on return."""
    for path in (directory.kvcq, directory.root / DIRECTORY):
        shutil.rmtree(path, ignore_errors=True)
    with (
        closing(SegmentSet.load(directory.commitlog, inventory.segment_bytes)) as segments,
        closing(RocksEngine.open(directory.kvcq, DERIVED)) as engine,
    ):
        end = inventory.log.end
        state = KvStateStore(engine, flushes=lambda: True)
        rows = [*_topics(inventory, clock.now_ms()), *_dead(inventory)]
        for first in range(0, len(rows), _PAGE):
            engine.write(KvBatch(puts={STATE: rows[first : first + _PAGE]}))
        lite = inventory.config.lite_parents.items()
        parents = [LiteTopicsOf(*each) for each in lite if each[0] in inventory.topics]
        _write(parents, end, state, engine)
        for group, rows_of in groupby(sorted(inventory.config.offsets), lambda each: each[0]):
            offsets = [Committed(*each) for each in rows_of]
            if group in inventory.pops:
                _take_shared(state, engine, group, offsets, inventory)
            else:
                _take(state, engine, offsets, end)
        taken = {each.group for each in inventory.config.offsets}
        for group in sorted(inventory.pops - taken):
            _take_shared(state, engine, group, [], inventory)
        state.advance(end)
        state.flush()
        Snapshots(directory.root, segments, engine.back_up, lambda: None, clock).take()
        directory.begin_state(end)


def _topics(inventory: Inventory, now_ms: int) -> list[tuple[bytes, bytes]]:
    """The rows of topics. Their records count from the log's start on, or from the generation that
    is live."""
    live_from = inventory.generations.live_from
    made = (
        TopicConfig(name, count, now_ms, live_from.get(name, 0))
        for name, count in inventory.topics.items()
        if name != STATE_TOPIC
    )
    return [(topic_key(topic.name), pack_topic(topic)) for topic in made]


def _dead(inventory: Inventory) -> list[tuple[bytes, bytes]]:
    return [
        (dead_key(name), pack_offset(below))
        for name, below in inventory.generations.dead_light.items()
    ]


def _take_shared(
    state: KvStateStore,
    engine: RocksEngine,
    group: str,
    offsets: list[Committed],
    inventory: Inventory,
) -> None:
    """Create a shared group for a popping group; it continues at its offsets. Its offsets in retry
    topics are recorded for `inherit`, because retries redeliver the original message here."""
    entries: list[Entry] = [
        GroupMade(TAKEN_GROUP, b""),
        GroupMade(group, pack_group(settings_of(inventory.config.groups.get(group, {})))),
    ]
    for each in offsets:
        if each.topic.startswith(RETRY_TOPICS):
            entries.append(each._replace(group=TAKEN_GROUP))
        else:
            entries.append(Reset(*each))
    _write(entries, inventory.log.end, state, engine)


def _take(state: KvStateStore, engine: RocksEngine, offsets: list[Committed], end: int) -> None:
    """Take over all committed offsets of one group."""
    _write([GroupMade(offsets[0].group, b""), *offsets], end, state, engine)


def _write(entries: Sequence[Entry], end: int, state: KvStateStore, engine: RocksEngine) -> None:
    changes: Changes = changes_of(entries, end, state)
    rows = [(key, value) for key, value in changes.written.items() if value is not None]
    engine.write(KvBatch(puts={STATE: rows}))
