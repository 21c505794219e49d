"""Reports the progress of Spark jobs."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from store.base import no_progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from store.base import Progress

_INTERVAL_S = 0.5


@contextmanager
def watched(spark: SparkSession, what: str, progress: Progress) -> Iterator[None]:
    """Report the tasks of the block's jobs to `progress`, twice a second.

    `progress` is called on another thread, and on this one at begin and end. If it raises, the
    reports stop; the work continues.
    """
    progress(what, 0.0)
    if progress is no_progress:
        yield
        return
    done = threading.Event()
    thread = threading.Thread(
        target=_follow, args=(spark, what, progress, done), name="spark-progress", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    progress(what, 1.0)


def _follow(spark: SparkSession, what: str, progress: Progress, done: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    seen: dict[int, tuple[int, int]] = {}  # stage -> tasks completed, tasks
    highest = 0.0
    while not done.wait(_INTERVAL_S):
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None:
                seen[stage] = (info.numCompletedTasks, info.numTasks)
        active = set(tracker.getActiveStageIds())
        completed = sum(
            tasks if stage not in active else finished for stage, (finished, tasks) in seen.items()
        )
        total = sum(tasks for _, tasks in seen.values())
        if total:
            # A new stage increases the total, but reported progress must not go back.
            highest = max(highest, min(0.99, completed / total))
            progress(what, highest)
