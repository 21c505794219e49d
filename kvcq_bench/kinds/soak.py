"""Hours at half speed: memory, file handles, latency and database size must stay flat."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from kvcq_bench.load import Plan, Workers, follow, in_turn, produce_all, until
from kvcq_bench.machine import touch_memory
from kvcq_client import Queue

if TYPE_CHECKING:
    from kvcq_bench.run import Run

_TOUCHED_BYTES = 64 << 20
#: Pause between two rounds of the reader.
_PAUSE_S = 0.5
#: What must stay flat: name in a sample; name, divisor and unit of the figure.
_FLAT = {
    "private_bytes": ("growth of private memory", 1e6, "MB/hour"),
    "open_files": ("growth of open files", 1, "files/hour"),
    "disk_kvcq_bytes": ("growth of the database", 1e6, "MB/hour"),
}


@dataclass(frozen=True)
class Parameters:
    seconds: float
    probe_seconds: float  # at full speed, to determine half of it
    parts: int = 6  # parts of the run with latencies of their own
    queues: int = 1000
    producers: int = 2
    size: int = 1024
    batch: int = 128


def run_soak(run: Run) -> None:
    """Figures: full and half rate; hourly growth of memory, files and disk, from lines fitted to
    the second half of the run, when caches are full and segments expire as fast as they arrive;
    latencies of each part of the run, with the machine's speed at providing fresh memory. Memory
    is that of the process, without pages of the log, which the kernel decides about.

    Full speed includes reads and checks. Half of what producers reach without them would leave the
    readers no capacity, and latency would measure the length of the backlog.
    """
    parameters = run.scenario.parameters_as(Parameters)
    began_s = perf_counter()
    probe = _Traffic(run, parameters, "probe")
    probe.run([(parameters.probe_seconds, None, "full speed")])
    full = probe.messages / (perf_counter() - began_s)
    run.recorder.figure("full speed", full, "messages/s")
    traffic = _Traffic(run, parameters, "soak")
    parts = [f"part {part} of {parameters.parts}" for part in range(1, parameters.parts + 1)]
    traffic.run([(parameters.seconds / len(parts), full / 2, part) for part in parts])
    begin_s = (run.recorder.elapsed_s + traffic.began_at_s) / 2
    samples = [row for row in run.recorder.samples if row["at_s"] >= begin_s]
    for name, (figure, divisor, unit) in _FLAT.items():
        points = [(row["at_s"], row[name]) for row in samples if name in row]
        if len(points) >= 3:
            times, values = np.array(points).T
            slope = np.polyfit(times, values, 1)[0]
            run.recorder.figure(figure, float(slope) * 3600 / divisor, unit)
    rates = [run.recorder.figures[f"put, {part}"].value for part in parts]
    run.recorder.figure("puts in the last part over the first", rates[-1] / rates[0])


class _Traffic:
    """Producers, each on its own queues, and a reader that reads and checks all of them."""

    def __init__(self, run: Run, parameters: Parameters, name: str) -> None:
        self.began_at_s = run.recorder.elapsed_s
        self._run = run
        self._parameters = parameters
        self._queues = [Queue(f"{name}-{number}", 0) for number in range(parameters.queues)]
        self._ledger = run.ledger(len(self._queues), parameters.size)
        self._written = threading.Event()
        run.target.create_topics({queue.topic: 1 for queue in self._queues})

    @property
    def messages(self) -> int:
        return self._ledger.acknowledged_messages

    def run(self, parts: list[tuple[float, float | None, str]]) -> None:
        """Run the parts: seconds, messages a second, name. Returns when everything is read."""
        with Workers() as reader:
            streams = range(len(self._queues))
            what = self._run, self._ledger, self._queues, streams, self._written, reader.stop
            reader.start(follow, *what, _PAUSE_S)
            try:
                for seconds, rate, name in parts:
                    self._run.recorder.begin(name)
                    with self._run.recorder.sampling:  # the store may be in this process
                        pace = touch_memory(_TOUCHED_BYTES)
                    self._run.recorder.figure(f"first touch of fresh memory, {name}", pace, "MB/s")
                    before, began_s = self.messages, perf_counter()
                    self._produce(seconds, rate, f"put {name}", reader.stop)
                    if reader.stop.is_set():
                        break  # the reader's error is raised below
                    put = (self.messages - before) / (perf_counter() - began_s)
                    self._run.recorder.figure(f"put, {name}", put, "messages/s")
            finally:
                self._written.set()

    def _produce(
        self, seconds: float, rate: float | None, latency: str, stop: threading.Event
    ) -> None:
        producers, count = self._parameters.producers, len(self._queues)
        each = rate / producers if rate is not None else None
        parts = (range(producer, count, producers) for producer in range(producers))
        turns = (in_turn(streams, sys.maxsize, self._parameters.batch) for streams in parts)
        timed = (until(turn, seconds) for turn in turns)
        size = self._parameters.size
        plans = (Plan(self._queues, turn, size, each, latency=latency) for turn in timed)
        produce_all(self._run, self._ledger, plans, stop)
