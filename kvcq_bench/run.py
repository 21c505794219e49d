"""One run: a scenario on a target, with its seed, its ledger and its recorder."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from kvcq_bench.bodies import BodyMaker
from kvcq_bench.ledger import Checker, Ledger
from kvcq_bench.machine import touch_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kvcq_bench.recorder import Recorder
    from kvcq_bench.scenario import Scenario
    from kvcq_bench.targets import Target
    from kvcq_client import Queue

_TOUCHED_BYTES = 2 << 30


@dataclass(frozen=True)
class Run:
    """What a kind of scenario works with."""

    scenario: Scenario
    target: Target
    recorder: Recorder

    @property
    def seed(self) -> int:
        return self.scenario.seed

    def random(self, *which: int) -> np.random.Generator:
        """A generator of its own for each purpose, the same in every run of the seed."""
        return np.random.default_rng((self.seed, *which))

    def ledger(self, streams: int, max_body_bytes: int) -> Ledger:
        return Ledger(streams, BodyMaker(self.seed, max_body_bytes))

    def touch_memory(self) -> None:
        """Before something is timed that writes much, see `machine.touch_memory`."""
        with self.recorder.sampling:  # it is not the target's, should that be in this process
            rate = touch_memory(int(_TOUCHED_BYTES * min(1.0, self.scenario.scale)))
        name = "memory_first_touch_mb_per_s, lowest"
        self.recorder.figure(name, min(rate, self.recorder.figures.get(name, rate)))

    def reopen(self, settings: Mapping[str, Any] | None = None, *, kill: bool = False) -> float:
        """Open the target again while no sample is taken: seconds until ready."""
        with self.recorder.sampling:
            return self.target.reopen(settings, kill=kill)


class Workers:
    """Threads that work until they are done, or one of them fails: then all stop.

    `with Workers() as workers: workers.start(...)` waits for all at the end, and raises the first
    failure.
    """

    def __init__(self, stop: threading.Event | None = None) -> None:
        """With `stop`, those that share it stop together."""
        self.stop = stop or threading.Event()
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []

    def start(self, work: Callable[..., object], *arguments: object) -> None:
        """Run `work` in a thread of its own."""

        def run() -> None:
            try:
                work(*arguments)
            except BaseException as error:  # noqa: BLE001 - raised again by `wait`
                self._failures.append(error)
                self.stop.set()

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def wait(self) -> None:
        """All have ended. Raises the first failure."""
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.stop.set()
        self.wait()


class Rate:
    """Holds a loop to so many events a second; None: as fast as it goes. Thread: one."""

    def __init__(self, per_second: float | None, stop: threading.Event) -> None:
        self._per_second = per_second
        self._stop = stop
        self._started_s = perf_counter()
        self._events = 0

    def wait(self, events: int) -> None:
        """So many more happened: wait until they are due."""
        if self._per_second is None:
            return
        self._events += events
        due_s = self._started_s + self._events / self._per_second
        self._stop.wait(max(0.0, due_s - perf_counter()))


def read_back(
    run: Run, ledger: Ledger, queues: Sequence[Queue], streams: Sequence[int] | None = None
) -> Checker:
    """Read queues from their start and check that all that was acknowledged is there.

    Queue `i` holds stream `i` alone. `streams`: these; otherwise all. Raises CheckFailedError.
    """
    streams = range(len(queues)) if streams is None else streams
    checker = Checker(ledger)
    for begin in range(0, len(streams), 20_000):
        stream_of = {queues[stream]: stream for stream in streams[begin : begin + 20_000]}
        for queue, messages in run.target.read_to_end(dict.fromkeys(stream_of, 0)):
            checker.see(messages, stream_of[queue])
            run.recorder.count("read_back", len(messages))
    checker.finish(streams)
    return checker


def follow(
    run: Run,
    ledger: Ledger,
    queues: Sequence[Queue],
    streams: Sequence[int],
    done: threading.Event,
    stop: threading.Event,
    pause_s: float = 0.0,
) -> None:
    """Read the queues while they are written, and once more when all is written; check all.

    `pause_s`: between two rounds; without one 20 ms, and that only when nothing came.
    """
    checker = Checker(ledger)
    stream_of = {queues[stream]: stream for stream in streams}
    positions = dict.fromkeys(stream_of, 0)
    while not stop.is_set():
        is_last, found = done.is_set(), 0
        for queue, messages in run.target.read_to_end(positions):
            checker.see(messages, stream_of[queue])
            positions[queue] = messages[-1].queue_offset + 1
            run.recorder.count("pulled", len(messages))
            found += len(messages)
        if is_last:
            checker.finish(streams)
            return
        if pause_s or not found:
            done.wait(pause_s or 0.02)
