"""What queues cost a store: memory and disk above those of the same store when it was empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcq_bench.recorder import Recorder

#: Directories of the store that grow with its queues; the log grows with messages.
_OF_QUEUES = ("disk_kvcq_bytes", "disk_meta_bytes")


def note_footprint(
    recorder: Recorder,
    queues: int,
    what: str,
    empty: Mapping[str, float],
    now: Mapping[str, float],
    *,
    with_disk: bool,
) -> None:
    """Figures of `queues` queues, called `what`, from two points of the same target.

    `with_disk`: all is on disk, as after a restart; before it, part is in memory.
    """
    for name in ("resident", "private"):
        if f"{name}_bytes" in now and f"{name}_bytes" in empty:
            growth = now[f"{name}_bytes"] - empty[f"{name}_bytes"]
            recorder.figure(f"{name}_growth_mb {what}", growth / 1e6)
    if with_disk and all(name in now and name in empty for name in _OF_QUEUES):
        growth = sum(now[name] - empty[name] for name in _OF_QUEUES)
        recorder.figure(f"disk_bytes_a_queue {what}", growth / max(1, queues))
