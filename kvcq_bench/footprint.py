"""Memory and disk that queues cost, relative to the same store when empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_bench.errors import NotPossibleHereError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcq_bench.recorder import Recorder
    from kvcq_bench.run import Run

#: The directory of the store that grows with its queues; the log grows with messages.
_OF_QUEUES = "disk_kvcq_bytes"


def note_made(recorder: Recorder, queues: int, what: str, empty: Mapping[str, float]) -> None:
    """Record memory and disk of `queues` queues that were just created. `what` names them in the
    figures. Part of their data is still in memory only."""
    note_growth(recorder, f"{queues:,} {what}, just made", empty, recorder.point(queues))


def restart(run: Run, queues: int, what: str, empty: Mapping[str, float]) -> None:
    """Reopen the target if possible. Record how long that took, and figures like `note_made`."""
    recorder = run.recorder
    recorder.begin(f"restart with {queues:,} {what}")
    try:
        ready_s = run.reopen()
    except NotPossibleHereError as error:
        recorder.notes.append(f"no restart: {error}")
        return
    recorder.figure(f"ready after a clean stop, {queues:,} {what}", ready_s, "s")
    now = recorder.point(queues, ready_s=ready_s)
    note_growth(recorder, f"{queues:,} {what}, restarted", empty, now)
    if _OF_QUEUES in now and _OF_QUEUES in empty:  # all is on disk now
        growth = now[_OF_QUEUES] - empty[_OF_QUEUES]
        recorder.figure(f"disk of a queue, {queues:,} {what}", growth / max(1, queues), "B")


def note_growth(
    recorder: Recorder, what: str, before: Mapping[str, float], now: Mapping[str, float]
) -> None:
    """Record the growth of memory from `before` to `now`, under the name `what`."""
    for name in ("resident", "private"):
        if f"{name}_bytes" in now and f"{name}_bytes" in before:
            growth = now[f"{name}_bytes"] - before[f"{name}_bytes"]
            recorder.figure(f"{name} memory, growth, {what}", growth / 1e6, "MB")
