"""What the figures of the shipped scenarios are to reach at full scale, and whether they do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvcq_bench.report.figures import with_latencies

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Goal:
    """A bound of one figure of one scenario."""

    scenario: str  # its name
    # Regular expression of the whole name, also of a latency; of several, the last counts.
    figure: str
    work: str
    unit: str
    bound: float
    at_most: bool = False

    @property
    def wanted(self) -> str:
        words = "at most" if self.at_most else "at least"
        return f"{words} {self.bound:,g} {self.unit}".rstrip()


@dataclass(frozen=True, kw_only=True)
class Judged(Goal):
    """A goal, and what was measured: `figure` is the name itself."""

    value: float

    @property
    def met(self) -> bool:
        return self.value <= self.bound if self.at_most else self.value >= self.bound


GOALS = (
    Goal(
        "steady",
        r"put_and_pulled_messages_per_s 1024B-1p-1c-async",
        "put and pulled at once, 1 KiB, one producer and one consumer",
        "messages/s",
        50_000,
    ),
    Goal(
        "steady",
        r"put_and_pulled_messages_per_s 1024B-64p-8c-sync",
        "put and pulled at once, 1 KiB, 64 producers that wait for the disk",
        "messages/s",
        40_000,
    ),
    Goal(
        "topics",
        r"first_messages_per_s \d+ topics",
        "first message to new topics",
        "messages/s",
        120_000,
    ),
    Goal(
        "topics",
        r"last_tenth_over_first \d+ topics",
        "last tenth of them, rate over that of the first",
        "",
        0.8,
    ),
    Goal(
        "topics",
        r"resident_growth_mb \d+ topics, restarted",
        "resident memory of the server with a million idle queues, above none",
        "MB",
        100,
        at_most=True,
    ),
    Goal(
        "topics",
        r"disk_bytes_a_queue \d+ topics, restarted",
        "disk of an idle topic with one unit",
        "B",
        150,
        at_most=True,
    ),
    Goal(
        "topics",
        r"ready_after_clean_stop_s \d+ topics",
        "ready after a clean stop, a million topics",
        "s",
        1,
        at_most=True,
    ),
    Goal(
        "light-queues",
        r"units_per_s fan-out 100",
        "light queues, 100 of a message",
        "units/s",
        500_000,
    ),
    Goal(
        "light-queues",
        r"resident_growth_mb \d+ light queues, restarted",
        "resident memory of the server with ten million idle queues, above none",
        "MB",
        200,
        at_most=True,
    ),
    Goal(
        "light-queues",
        r"disk_bytes_a_queue \d+ light queues, restarted",
        "disk of an idle light queue with one unit",
        "B",
        150,
        at_most=True,
    ),
    Goal(
        "light-queues",
        r"ready_after_clean_stop_s \d+ light queues",
        "ready after a clean stop, ten million light queues",
        "s",
        2,
        at_most=True,
    ),
    Goal(
        "cold-reads",
        r"put_rate_kept",
        "producers beside consumers that are 10 GB behind, share of their rate",
        "",
        0.8,
    ),
    Goal(
        "queries",
        r"query by key p99_ms",
        "p99 of a query by key beside 30,000 puts/s",
        "ms",
        100,
        at_most=True,
    ),
    Goal(
        "queries",
        r"search by time p99_ms",
        "p99 of a search by time beside 30,000 puts/s",
        "ms",
        150,
        at_most=True,
    ),
    Goal("removal", r"topics_deleted_per_s", "topics deleted under load", "topics/s", 200),
    Goal(
        "removal",
        r"read beside deletion p99_ms",
        "p99 of a pull beside deletions",
        "ms",
        50,
        at_most=True,
    ),
    Goal(
        "file-against-kv",
        r"put_messages_per_s rocksdb \d+",
        "messages to 50,000 queues in RocksDB",
        "messages/s",
        80_000,
    ),
    Goal(
        "file-against-kv",
        r"kvcq_mb rocksdb \d+",
        "disk of 50,000 queues of five messages in RocksDB",
        "MB",
        10,
        at_most=True,
    ),
    Goal(
        "file-against-kv",
        r"close_s rocksdb \d+",
        "closing a store of 50,000 queues in RocksDB",
        "s",
        1,
        at_most=True,
    ),
    Goal(
        "soak",
        r"put_rate_last_part_over_first",
        "puts in the last part of an hour at half speed, over those in the first",
        "",
        0.95,
    ),
    Goal(
        "soak",
        r"put part \d+ of \d+ p99_ms",
        "p99 of a put at half speed, in the last part of the hour",
        "ms",
        1000,
        at_most=True,
    ),
    Goal(
        "soak",
        r"private_memory_growth_mb_per_hour",
        "growth of private memory at half speed, an hour",
        "MB",
        50,
        at_most=True,
    ),
    Goal(
        "soak",
        r"open_files_growth_per_hour",
        "growth of open files at half speed, an hour",
        "files",
        5,
        at_most=True,
    ),
    Goal(
        "soak",
        r"database_growth_mb_per_hour",
        "growth of the database at half speed, while segments expire, an hour",
        "MB",
        10,
        at_most=True,
    ),
    Goal(
        "kill", r"ready_after_kill_s", "ready after kill -9 under full load", "s", 10, at_most=True
    ),
    Goal(
        "compaction",
        r"pull_p99_ratio",
        "p99 of a pull beside a compaction of everything, over that without",
        "",
        3,
        at_most=True,
    ),
)


def judge(document: Mapping[str, Any]) -> list[Judged]:
    """The goals of a report's scenario that it has figures for; none of a run at a smaller scale,
    for which they are not meant.
    """
    found: list[Judged] = []
    if document.get("scale", 1.0) < 1:
        return found
    figures = with_latencies(document)
    for goal in GOALS:
        if goal.scenario != document["scenario"]:
            continue
        names = [name for name in figures if re.fullmatch(goal.figure, name)]
        if names:
            measured = {"figure": names[-1], "value": figures[names[-1]]}
            found.append(Judged(**{**vars(goal), **measured}))
    return found
