"""Producers: threads that make messages from the seed, send them in lists, and keep the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from kvcq_bench.run import Rate, Workers
from kvcq_client import Message

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kvcq_bench.ledger import Ledger
    from kvcq_bench.run import Run
    from kvcq_bench.targets import Writer
    from kvcq_client import Queue


@dataclass(frozen=True)
class Plan:
    """What one producer does. Its streams are its own: no other producer writes them."""

    queues: Mapping[int, Queue] | Sequence[Queue]  # by stream
    #: Streams of the next messages, a list each time; the end of it ends the producer.
    choices: Iterable[Sequence[int]]
    size: int  # of a body, bytes
    rate: float | None = None  # messages a second
    keys: Callable[[int, int], tuple[str, ...]] | None = None  # by stream and number
    light_queues: Callable[[int, int], tuple[str, ...]] | None = None
    latency: str = "put"
    counter: str = "put"


def produce(run: Run, ledger: Ledger, plan: Plan, stop: threading.Event) -> None:
    """Send what the plan says until its end, or `stop`; returns when all has its outcome."""
    writer = run.target.writer()
    try:
        _produce(run, ledger, plan, stop, writer)
        writer.flush()
    finally:
        writer.close()


def produce_all(
    run: Run, ledger: Ledger, plans: Iterable[Plan], stop: threading.Event | None = None
) -> None:
    """Each plan by a producer of its own; returns when all have ended. Raises the first failure."""
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
                    plan.keys(stream, number) if plan.keys is not None else (),
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
    """The streams one after the other, again and again, in lists of `batch`."""
    count = len(streams)
    for begin in range(0, messages, batch):
        yield [streams[at % count] for at in range(begin, min(begin + batch, messages))]


def until(choices: Iterable[Sequence[int]], seconds: float) -> Iterable[Sequence[int]]:
    """The choices, for so long."""
    end_s = perf_counter() + seconds
    for choice in choices:
        if perf_counter() >= end_s:
            return
        yield choice
