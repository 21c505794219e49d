"""Make the derived database again from the log, the old one kept until that has succeeded."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from kvcq.engine.rocks import RocksEngine, metadata_profile
from kvcq.errors import KvcqError
from migration.errors import IllegalStepError
from migration.next_step import NextStep
from migration.state import read_state
from store.base import SystemClock, move_aside, no_progress
from store.errors import DamagedLogError, StoreFormatError
from store.log import Damage, SegmentSet, walk
from store.store_dir import DirKind, StoreDir, inspect

if TYPE_CHECKING:
    from pathlib import Path

    from store.base import Progress


class SetAside(NamedTuple):
    """What `set_queues_aside` found and did."""

    path: Path | None  # the old database under its new name, None when there was none
    segment_bytes: int
    damage: list[Damage]  # records that will be missing from the queues


def set_queues_aside(
    root: Path,
    progress: Progress = no_progress,
    *,
    skip_damaged: bool = False,
) -> SetAside:
    """`kvcq/` has another name, and the log was found fit to make it again.

    Raises StoreFormatError when `root` is no store of ours, or its `meta/` is not sound: queues are
    made for the topics in it; IllegalStepError when it has a migration, which keeps its own account
    of its sides; StoreLockedError while it is open, DamagedLogError when the log is damaged and
    that is not to be left out: nothing was changed then, and the store serves what it served.
    """
    kind, identity = inspect(root)
    if kind is not DirKind.OURS or identity is None:
        raise StoreFormatError(root, "is not a store of ours")
    state = read_state(root)
    if state is not None:
        raise IllegalStepError(
            "repair --queues",
            state.phase.name,
            "a migration keeps account of what its sides hold, and makes them again itself",
            rebuild_side_step("rocksdb"),
        )
    directory = StoreDir.open(root, identity.segment_bytes, SystemClock())
    try:
        _require_topics(directory)
        damage = _find_damage(directory.commitlog, identity.segment_bytes, progress)
        if damage and not skip_damaged:
            first = damage[0]
            raise DamagedLogError(*first, can_be_left_out=True, places=len(damage))
        aside = move_aside(directory.kvcq, "replaced") if directory.kvcq.exists() else None
        return SetAside(aside, identity.segment_bytes, damage)
    finally:
        directory.close()


def rebuild_side_step(side: str) -> NextStep:
    """What rebuilds a side of a store with a migration."""
    return NextStep("resume", ("--rebuild", side), stopped_only=True)


def _require_topics(directory: StoreDir) -> None:
    try:
        RocksEngine.open_read_only(directory.meta, metadata_profile()).close()
    except KvcqError as error:
        raise StoreFormatError(
            directory.meta,
            f"cannot be read ({error}), and queues are made for the topics in it alone. Bring it "
            f"back from a copy, or first run `kvcq repair {directory.root} --metadata`",
        ) from error


def _find_damage(commitlog: Path, segment_bytes: int, progress: Progress) -> list[Damage]:
    damage: list[Damage] = []
    with closing(SegmentSet.load(commitlog, segment_bytes, read_only=True)) as segments:
        span = max(1, segments.end_offset - segments.first_offset)
        for step in walk(segments, segments.first_offset):
            if isinstance(step, Damage):
                damage.append(step)
            progress("reading the log", (step.next_offset - segments.first_offset) / span)
    return damage
