"""Many topics: create them, put one message each, Zipf traffic, restart, read back."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from kvcq_bench.footprint import note_made, restart
from kvcq_bench.ledger import Checker
from kvcq_bench.load import Plan, produce_all
from kvcq_client import Queue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvcq_bench.ledger import Ledger
    from kvcq_bench.run import Run


@dataclass(frozen=True)
class Parameters:
    """Each step adds topics up to the next of `counts`, which must ascend."""

    counts: list[int]
    traffic_messages: int  # after each step
    sample_queues: int  # queues that are read back after each step; all after the last one
    read_seconds: float = 300.0  # time for that; if it is not enough, a note says so
    size: int = 1024
    batch: int = 1000
    zipf: float = 1.1


def run_topics(run: Run) -> None:
    """Figures for each count: creations/s, first messages/s (and its last tenth over its first),
    traffic messages/s, seconds until ready after a restart, memory and disk above an empty store.
    """
    parameters = run.scenario.parameters_as(Parameters)
    queues = [Queue(f"topic-{number:07d}", 0) for number in range(parameters.counts[-1])]
    ledger = run.ledger(len(queues), parameters.size)
    empty = run.recorder.point(0)
    before = 0
    for count in parameters.counts:
        _grow(run, parameters, ledger, queues, before, count)
        note_made(run.recorder, count, "topics", empty)
        _traffic(run, parameters, ledger, queues[:count])
        restart(run, count, "topics", empty)
        sample = parameters.sample_queues if count != parameters.counts[-1] else count
        _read(run, parameters, ledger, queues, count, sample)
        before = count


def _grow(
    run: Run, parameters: Parameters, ledger: Ledger, queues: list[Queue], begin: int, end: int
) -> None:
    run.recorder.begin(f"create {end - begin:,} topics")
    with run.recorder.rate(f"topics created, {end:,} topics", end - begin, "topics/s"):
        for first in range(begin, end, 10_000):
            part = queues[first : min(first + 10_000, end)]
            run.target.create_topics({queue.topic: 1 for queue in part})
            run.recorder.count("topics_created", len(part))
    run.recorder.begin(f"first message to {end - begin:,} topics")
    run.touch_memory()
    tenth = max(1, (end - begin) // 10)
    rates = []
    with run.recorder.rate(f"first messages, {end:,} topics", end - begin, "messages/s"):
        for first in range(begin, end, tenth):
            streams = range(first, min(first + tenth, end))
            part_s = perf_counter()
            _send(run, parameters, ledger, queues, _cut(streams, parameters.batch), "first message")
            rates.append(len(streams) / (perf_counter() - part_s))
    run.recorder.figure(f"last tenth over the first, {end:,} topics", rates[-1] / rates[0])


def _cut(streams: range, batch: int) -> Iterable[range]:
    for begin in range(0, len(streams), batch):
        yield streams[begin : begin + batch]


def _traffic(run: Run, parameters: Parameters, ledger: Ledger, queues: list[Queue]) -> None:
    run.recorder.begin(f"Zipf traffic over {len(queues):,} topics")
    random = run.random(1, len(queues))
    # Shuffled, so that a topic's popularity is independent of the order of names.
    popular = random.permutation(len(queues))

    def choices() -> Iterable[list[int]]:
        left = parameters.traffic_messages
        while left > 0:
            count = min(left, parameters.batch)
            ranks = (random.zipf(parameters.zipf, count) - 1) % len(queues)
            chosen: list[int] = popular[ranks].tolist()
            yield chosen
            left -= count

    run.touch_memory()
    name = f"Zipf traffic, {len(queues):,} topics"
    with run.recorder.rate(name, parameters.traffic_messages, "messages/s"):
        _send(run, parameters, ledger, queues, choices(), "Zipf traffic")


def _send(
    run: Run,
    parameters: Parameters,
    ledger: Ledger,
    queues: list[Queue],
    choices: Iterable[range] | Iterable[list[int]],
    latency: str,
) -> None:
    produce_all(run, ledger, [Plan(queues, choices, parameters.size, latency=latency)])


def _read(
    run: Run, parameters: Parameters, ledger: Ledger, queues: list[Queue], count: int, sample: int
) -> None:
    run.recorder.begin(f"read back {min(sample, count):,} of {count:,} topics")
    # In random order, so that the queues read are a fair sample if time runs out.
    chosen = run.random(2, count).permutation(count)[:sample].tolist()
    checker = Checker(ledger)
    started_s = perf_counter()
    done = 0
    while done < len(chosen) and perf_counter() - started_s < parameters.read_seconds:
        part = chosen[done : done + 20_000]
        stream_of = {queues[stream]: stream for stream in part}
        for queue, messages in run.target.read_to_end(dict.fromkeys(stream_of, 0)):
            checker.see(messages, stream_of[queue])
            run.recorder.count("read_back", len(messages))
        checker.finish(part)
        done += len(part)
    if done < len(chosen):
        run.recorder.notes.append(
            f"{done:,} of {len(chosen):,} topics were read back in {parameters.read_seconds:g} s"
        )
    seconds = perf_counter() - started_s
    run.recorder.figure(f"read back, {count:,} topics", done, "topics")
    run.recorder.figure(f"queues read, {count:,} topics", done / seconds, "queues/s")
