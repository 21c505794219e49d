"""What `kvcq/` knows of the topics, for a store whose `meta/` is lost."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.engine.rocks import DERIVED, RocksEngine
from kvcq.errors import KvcqError
from migration.state import has_migration
from store.light_queue import is_light

if TYPE_CHECKING:
    from store.store_dir import StoreDir

logger = logging.getLogger(__name__)


class KnownTopics(NamedTuple):
    """Topics that have rows of bounds; light queues are none."""

    queue_counts: dict[str, int]  # one more than the highest queue id
    live_from: dict[str, int]  # physical offset of the first record of theirs; none: absent
    dispatched_offset: int  # a topic with records below it that is not here was deleted


def known_topics(directory: StoreDir) -> KnownTopics | None:
    """From the bounds and first units; None when `kvcq/` cannot tell.

    That is: it is missing, or not proved to be sound, or there are file queues that know more.
    Memory: an entry for each topic. Time: a read for each queue.
    """
    if has_migration(directory.root) or not directory.kvcq.exists():
        return None
    try:
        queues = KvConsumeQueueStore(RocksEngine.open_read_only(directory.kvcq, DERIVED))
    except KvcqError as error:
        logger.warning("%s does not help to find the topics: %s", directory.kvcq, error)
        return None
    try:
        return _look(queues)
    except KvcqError as error:
        logger.warning("%s does not help to find the topics: %s", directory.kvcq, error)
        return None
    finally:
        queues.close()


def _look(queues: KvConsumeQueueStore) -> KnownTopics:
    known = KnownTopics({}, {}, queues.dispatched_offset)
    for topic, queue_id, _, _ in queues.last_units():
        if is_light(topic):
            continue
        known.queue_counts[topic] = max(known.queue_counts.get(topic, 1), queue_id + 1)
        for _, unit in queues.read_units(topic, queue_id, 0, 1):
            known.live_from[topic] = min(
                known.live_from.get(topic, unit.physical_offset), unit.physical_offset
            )
    return known
