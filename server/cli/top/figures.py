"""Rates between two samples, per second, and levels of the later one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    import kvcq_client
    from kvcq_client import GroupDeadLetters, TopicTraffic
    from server.cli.top.sample import Sample

#: Field of Figures to the server's name of a level. A level that a server does not report is None.
_LEVELS = {
    "dispatch_behind_bytes": "store.dispatch_behind_bytes",
    "flush_behind_bytes": "store.flush_behind_bytes",
    "disk_used_ratio": "store.disk_used_ratio",
    "memory_bytes": "server.memory_bytes",
    "producers": "server.producers",
    "watched_queues": "server.watched_queues",
    "hot_queues": "store.hot_queues",
    "block_cache_bytes": "kvcq.block_cache_bytes",
    "running_compactions": "kvcq.running_compactions",
    "running_flushes": "kvcq.running_flushes",
    "write_stopped": "kvcq.write_stopped",
}
#: Levels that are summed over the column families of the queues' database.
_OF_FAMILIES = (
    "memtable_bytes",
    "sst_bytes",
    "l0_files",
    "pending_compaction_bytes",
)


class Topic(NamedTuple):
    """Rates of one topic; "%LMQ%" is all light queues, "" all topics without a row."""

    topic: str
    messages_in: float
    bytes_in: float
    messages_out: float
    bytes_out: float


class Group(NamedTuple):
    """The lag of a group in a topic."""

    group: str
    topic: str
    messages: int
    behind_s: float | None  # age of the oldest message not committed, or not done
    shared: bool = False
    in_flight: int = 0  # of a shared group
    waiting_again: int = 0


class RunningJob(NamedTuple):
    """A job that runs."""

    job_id: str
    kind: str
    step: str
    percent: float | None  # None: unknown
    elapsed_s: float


@dataclass(frozen=True)
class Rates:
    """Rates of the whole server."""

    messages_in: float
    bytes_in: float
    messages_out: float
    bytes_out: float
    calls: float
    refusals: float
    flushes: float
    flush_ms: float | None  # average of one flush; None if there was none


@dataclass(frozen=True)
class Figures:
    """The values that are shown."""

    version: str
    uptime_s: float
    ready: bool
    opening: float | None  # progress while the store is opened, 0 to 1
    draining: bool
    denied: bool  # the user may not see topics, groups and jobs
    rates: Rates
    levels: dict[str, float | None]
    topics: list[Topic]  # by traffic
    topic_count: int | None
    groups: list[Group]  # by lag
    group_count: int | None
    dead_letters: list[GroupDeadLetters]  # most first
    jobs: list[RunningJob]


def figures_of(before: Sample, now: Sample, now_ms: int, topics: int, groups: int) -> Figures:
    """Figures from two samples. `topics`, `groups`: the most that are shown."""
    if now.uptime_s < before.uptime_s:
        before = now  # the server restarted, so there are no rates yet
    passed_s = max(now.time_s - before.time_s, 1e-9)
    traffic = _rates_of_topics(before.activity.topics, now.activity.topics, passed_s)
    numbers = now.numbers
    busy = sorted(traffic, key=lambda one: one.bytes_in + one.bytes_out, reverse=True)
    return Figures(
        version=now.version,
        uptime_s=now.uptime_s,
        ready=numbers.get("server.ready", 0) > 0,
        opening=numbers.get("server.opening_progress"),
        draining=numbers.get("server.draining", 0) > 0,
        denied=now.denied,
        rates=_rates(before, now, passed_s, traffic),
        levels={
            **{name: numbers.get(theirs) for name, theirs in _LEVELS.items()},
            **{name: _of_families(now, name) for name in _OF_FAMILIES},
        },
        topics=[one for one in busy if any(one[1:])][:topics],
        topic_count=now.activity.topic_count,
        groups=[
            Group(
                one.group,
                one.topic,
                one.messages,
                None if one.since_ms is None else max(0.0, (now_ms - one.since_ms) / 1000),
                one.shared,
                one.in_flight,
                one.waiting_again,
            )
            for one in sorted(now.activity.groups, key=lambda lag: lag.messages, reverse=True)
        ][:groups],
        group_count=now.activity.group_count,
        dead_letters=now.activity.dead_letters[:groups],
        jobs=[_job(one) for one in now.jobs],
    )


def _rates(before: Sample, now: Sample, passed_s: float, topics: Iterable[Topic]) -> Rates:
    def rise(name: str) -> float:
        return max(0.0, now.numbers.get(name, 0.0) - before.numbers.get(name, 0.0))

    def rise_of_all(prefix: str) -> float:
        return sum(rise(name) for name in now.numbers if name.startswith(prefix))

    flushes = rise("store.flush_count")
    out = list(topics)
    return Rates(
        messages_in=rise("server.messages_put") / passed_s,
        bytes_in=sum(one.bytes_in for one in out),
        messages_out=rise("server.messages_pulled") / passed_s,
        bytes_out=sum(one.bytes_out for one in out),
        calls=rise_of_all("server.calls.") / passed_s,
        refusals=rise_of_all("server.refusals.") / passed_s,
        flushes=flushes / passed_s,
        flush_ms=rise("store.flush_seconds") / flushes * 1000 if flushes else None,
    )


def _rates_of_topics(
    before: Iterable[TopicTraffic], now: Iterable[TopicTraffic], passed_s: float
) -> list[Topic]:
    earlier = {one.topic: one for one in before}
    found = []
    for one in now:
        last = earlier.get(one.topic)
        # A row that is new, or was reset since, began at 0.
        if last is None or any(b > a for a, b in zip(one[1:], last[1:], strict=True)):
            last = one._replace(messages_in=0, bytes_in=0, messages_out=0, bytes_out=0)
        rates = [(a - b) / passed_s for a, b in zip(one[1:], last[1:], strict=True)]
        found.append(Topic(one.topic, *rates))
    return found


def _of_families(now: Sample, name: str) -> float | None:
    found = [
        value
        for key, value in now.numbers.items()
        if key.startswith("kvcq.") and key.endswith(f".{name}")
    ]
    return sum(found) if found else None


def _job(job: kvcq_client.Job) -> RunningJob:
    percent = job.percent if job.total else None
    return RunningJob(job.job_id, job.kind, job.step, percent, job.elapsed_s)
