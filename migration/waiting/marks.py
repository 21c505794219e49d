"""A broker's positions in the queues of its system topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migration.broker_config import TAKEN_GROUP, GroupOffset, delivered_offsets
from migration.waiting.names import HALF_GROUP, REVIVE_GROUP
from store.format import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def delivered_delayed(root: Path) -> list[GroupOffset]:
    """For each level the offset up to which the broker has delivered, as offsets of a group. Raises
    StoreFormatError if delayOffset.json is damaged."""
    return [
        GroupOffset(TAKEN_GROUP, SCHEDULE_TOPIC, level - 1, offset)
        for level, offset in sorted(delivered_offsets(root).items())
        if level > 0 and offset >= 0
    ]


def done_below(offsets: Iterable[GroupOffset]) -> dict[tuple[str, int], int]:
    """The broker's position in each queue of its own topics, from its groups' committed offsets."""
    own = (HALF_GROUP, REVIVE_GROUP, TAKEN_GROUP)
    return {(each.topic, each.queue_id): each.offset for each in offsets if each.group in own}
