"""Rebuilds the queues from the log. The old database is kept under another name."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from kvcq.without_queues import place_without_queues
from migration.errors import IllegalStepError
from migration.next_step import NextStep
from migration.state import read_state
from store.base import SystemClock, no_progress
from store.errors import DamagedLogError, StoreFormatError
from store.format import read_noted
from store.log import Damage, SegmentSet, check_has_durable, walk
from store.store_dir import StoreDir, inspect

if TYPE_CHECKING:
    from pathlib import Path

    from store.base import Progress

REPLACED = "replaced"


class SetAside(NamedTuple):
    """The result of `set_queues_aside`."""

    path: Path | None  # the old database; None if there was none
    segment_bytes: int
    damage: list[Damage]  # damaged records, which the queues will lack


def set_queues_aside(
    root: Path,
    progress: Progress = no_progress,
    *,
    skip_damaged: bool = False,
) -> SetAside:
    """Replace `kvcq/` by a database with the state but without queues, after checking that the log
    can rebuild them. The old database is renamed.

    Raises StoreFormatError if `root` is not a kvcq store, if files of its log are missing, or if
    its state cannot be read; IllegalStepError if it has a migration; StoreLockedError while it is
    open; DamagedLogError if the log is damaged, unless `skip_damaged`. On an error nothing is
    changed.
    """
    _, identity = inspect(root)
    if identity is None:
        raise StoreFormatError(root, "is not a kvcq store")
    state = read_state(root)
    if state is not None:
        raise IllegalStepError(
            "repair --queues",
            state.phase.name,
            "a store with a migration rebuilds its sides itself",
            rebuild_side_step("rocksdb"),
        )
    with closing(StoreDir.open(root, identity.segment_bytes, SystemClock())) as directory:
        with closing(
            SegmentSet.load(directory.commitlog, identity.segment_bytes, read_only=True)
        ) as segments:
            noted = read_noted(directory.checkpoint, directory.previous_checkpoint).checkpoint
            check_has_durable(segments, 0 if noted is None else noted.flushed_offset)
            damage = _find_damage(segments, progress)
        if damage and not skip_damaged:
            first = damage[0]
            raise DamagedLogError(*first, can_be_left_out=True, places=len(damage))
        with closing(SegmentSet.load(directory.commitlog, identity.segment_bytes)) as segments:
            aside = place_without_queues(directory, segments, REPLACED)
        return SetAside(aside, identity.segment_bytes, damage)


def rebuild_side_step(side: str) -> NextStep:
    """The step that rebuilds a side of a store with a migration."""
    return NextStep("resume", ("--rebuild", side), stopped_only=True)


def _find_damage(segments: SegmentSet, progress: Progress) -> list[Damage]:
    damage: list[Damage] = []
    span = max(1, segments.end_offset - segments.first_offset)
    for step in walk(segments, segments.first_offset):
        if isinstance(step, Damage):
            damage.append(step)
        progress("reading the log", (step.next_offset - segments.first_offset) / span)
    return damage
