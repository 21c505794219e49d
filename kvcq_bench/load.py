"""Load: producers create messages from the seed and update the ledger; readers check messages."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from kvcq_bench.errors import CheckFailedError
from kvcq_bench.ledger import Checker
from kvcq_client import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kvcq_bench.ledger import Ledger
    from kvcq_bench.run import Run
    from kvcq_bench.targets import Writer
    from kvcq_client import Queue

#: Timeout of `wait_until`, and how often it checks.
_TIMEOUT_S = 3600.0
_LOOK_S = 0.05


class Workers:
    """Threads. If one of them fails, all are stopped.

    `with Workers() as workers: workers.start(...)` waits for all at the end, and raises the first
    failure.
    """

    def __init__(self, stop: threading.Event | None = None) -> None:
        """Workers that share a `stop` stop together."""
        self.stop = stop or threading.Event()
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []

    def start(self, work: Callable[..., object], *arguments: object) -> None:
        """Run `work` in a new thread."""

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
        """Block until all have ended. Raises the first failure."""
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
    """Limits a loop to a number of events a second; None for no limit. Thread: one."""

    def __init__(self, per_second: float | None, stop: threading.Event) -> None:
        self._per_second = per_second
        self._stop = stop
        self._started_s = perf_counter()
        self._events = 0

    def wait(self, events: int) -> None:
        """Block until `events` more are due."""
        if self._per_second is None:
            return
        self._events += events
        due_s = self._started_s + self._events / self._per_second
        self._stop.wait(max(0.0, due_s - perf_counter()))


@dataclass(frozen=True)
class Plan:
    """The work of one producer. No other producer writes its streams."""

    queues: Mapping[int, Queue] | Sequence[Queue]  # by stream
    #: Each list has the streams of the next messages. The producer ends after the last list.
    choices: Iterable[Sequence[int]]
    size: int  # bytes of a body
    rate: float | None = None  # messages a second
    light_queues: Callable[[int, int], tuple[str, ...]] | None = None  # by stream and number
    latency: str = "put"
    counter: str = "put"


def produce(run: Run, ledger: Ledger, plan: Plan, stop: threading.Event) -> None:
    """Send the plan's messages until its end or `stop`. Returns when all have a result."""
    with closing(run.target.writer()) as writer:
        _produce(run, ledger, plan, stop, writer)
        writer.flush()


def produce_all(
    run: Run, ledger: Ledger, plans: Iterable[Plan], stop: threading.Event | None = None
) -> None:
    """Run each plan with a producer of its own; returns when all have ended. Raises the first
    failure."""
    with Workers(stop) as workers:
        for plan in plans:
            workers.start(produce, run, ledger, plan, workers.stop)


def _produce(run: Run, ledger: Ledger, plan: Plan, stop: threading.Event, writer: Writer) -> None:
    rate = Rate(plan.rate, stop)
    histogram = run.recorder.latency(plan.latency)
    make = ledger.bodies.make
    sent = ledger.sent
    for streams in plan.choices:
        if stop.is_set():
            return
        messages: list[Message] = []
        numbers: list[tuple[int, int]] = []
        for stream in streams:
            number = int(sent[stream])
            sent[stream] = number + 1
            numbers.append((stream, number))
            queue = plan.queues[stream]
            messages.append(
                Message(
                    queue.topic,
                    make(stream, number, plan.size),
                    queue.queue_id,
                    "",
                    (),
                    plan.light_queues(stream, number) if plan.light_queues is not None else (),
                )
            )
        began_s = perf_counter()

        def done(
            errors: Mapping[int, Exception],
            numbers: list[tuple[int, int]] = numbers,
            began_s: float = began_s,
        ) -> None:
            good = len(numbers) - len(errors)
            if good:
                histogram.add(perf_counter() - began_s, good)
                ledger.acknowledged(good)
                run.recorder.count(plan.counter, good)
            if errors:
                run.recorder.count(f"{plan.counter}.failed", len(errors))
                ledger.failed(numbers[index] for index in errors)

        writer.write(messages, done)
        rate.wait(len(messages))
        ledger.check_failed()


def in_turn(streams: Sequence[int], messages: int, batch: int) -> Iterable[list[int]]:
    """Yield the streams one after the other, repeatedly, in lists of `batch`."""
    count = len(streams)
    for begin in range(0, messages, batch):
        yield [streams[at % count] for at in range(begin, min(begin + batch, messages))]


def until(choices: Iterable[Sequence[int]], seconds: float) -> Iterable[Sequence[int]]:
    """Yield the choices for that many seconds."""
    end_s = perf_counter() + seconds
    for choice in choices:
        if perf_counter() >= end_s:
            return
        yield choice


def wait_until(has_happened: Callable[[], object], what: str) -> None:
    """Block until `has_happened` returns a true value. Raises CheckFailedError after an hour."""
    until_s = perf_counter() + _TIMEOUT_S
    while not has_happened():
        if perf_counter() > until_s:
            raise CheckFailedError(f"not within {_TIMEOUT_S:g} s: {what}")
        time.sleep(_LOOK_S)


def read_back(run: Run, ledger: Ledger, queues: Sequence[Queue]) -> Checker:
    """Read queues from their start and check that everything acknowledged is there.

    Queue `i` must only have stream `i`. Raises CheckFailedError.
    """
    streams = range(len(queues))
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
    """Read the queues while they are written, and once more at the end; check all messages.

    `pause_s`: between two rounds; by default 20 ms, and only if nothing arrived.
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
