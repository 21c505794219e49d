"""Delayed messages by the million: some wait throughout, others become due meanwhile.

First a thousand a second become due, each in its own millisecond. Then very many become due at one
instant while the target is stopped. Measures how fast and in which order they are delivered after
the restart, and how much that slows puts down.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

from kvcq_bench.errors import CheckFailedError
from kvcq_bench.footprint import note_made, restart
from kvcq_bench.load import Workers, wait_until
from kvcq_client import Message, Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kvcq_bench.histogram import Histogram
    from kvcq_bench.ledger import Ledger
    from kvcq_bench.run import Run

T = TypeVar("T")

_FAR, _ON_TIME, _TOGETHER, _BESIDE = (
    Queue(name, 0) for name in ("far-away", "on-time", "all-at-once", "beside")
)
_QUEUES = (_FAR, _ON_TIME, _TOGETHER, _BESIDE)
#: Most messages of one call.
_MOST = 1024
_DAY_MS = 24 * 3_600_000
_AHEAD_MS = 2000
_FEW_S = 0.05


@dataclass(frozen=True)
class Parameters:
    pending: int  # messages due in one to thirty days
    a_second: int  # messages that become due each second meanwhile
    seconds: int  # for this long
    together: int  # messages due at one instant
    alone_seconds: float  # of puts without deliveries
    size: int = 100


def run_timers(run: Run) -> None:
    """Figures: put/s; memory, disk and restart time with waiting messages; lateness; deliveries/s
    after a stop; latency of puts with and without deliveries."""
    parameters = run.scenario.parameters_as(Parameters)
    run.target.create_topics({queue.topic: 1 for queue in _QUEUES})
    ledger = run.ledger(len(_QUEUES), parameters.size)
    empty = run.recorder.point(0)
    what = "delayed messages"
    _fill(run, parameters, ledger)
    note_made(run.recorder, parameters.pending, what, empty)
    restart(run, parameters.pending, what, empty)
    waiting = run.recorder.points[-1]
    if {"disk_kvcq_bytes"} <= waiting.keys() & empty.keys():
        grown = waiting["disk_kvcq_bytes"] - empty["disk_kvcq_bytes"]
        run.recorder.figure(f"database, {parameters.pending:,} {what}", grown / 1e6, "MB")
    _come_due(run, parameters, ledger)
    _all_at_once(run, parameters, ledger)


def _messages(ledger: Ledger, queue: Queue, count: int, size: int) -> list[Message]:
    """The next messages of the queue's stream."""
    stream = _QUEUES.index(queue)
    first = int(ledger.sent[stream])
    ledger.sent[stream] = first + count
    return [
        Message(queue.topic, ledger.bodies.make(stream, number, size), queue_id=queue.queue_id)
        for number in range(first, first + count)
    ]


def _put_later(run: Run, ledger: Ledger, queue: Queue, due_ms: Sequence[int], size: int) -> None:
    for first in range(0, len(due_ms), _MOST):
        some = due_ms[first : first + _MOST]
        run.target.put_later(_messages(ledger, queue, len(some), size), some)
        run.recorder.count("delayed_messages", len(some))


def _fill(run: Run, parameters: Parameters, ledger: Ledger) -> None:
    run.recorder.begin(f"{parameters.pending:,} delayed messages")
    random = run.random(7)
    now_ms = _now_ms()
    with run.recorder.rate("put, 1,024 a call", parameters.pending, "messages/s"):
        for first in range(0, parameters.pending, _MOST):
            count = min(_MOST, parameters.pending - first)
            due_ms = random.integers(now_ms + _DAY_MS, now_ms + 30 * _DAY_MS, count).tolist()
            _put_later(run, ledger, _FAR, due_ms, parameters.size)


def _come_due(run: Run, parameters: Parameters, ledger: Ledger) -> None:
    """Put messages with twenty calls a second; each message has its own due time."""
    a_second = parameters.a_second
    run.recorder.begin(f"{a_second:,} a second come due")
    histogram = run.recorder.latency(f"late, {a_second:,} a second")
    each = max(1, a_second // 20)
    for _ in range(20 * parameters.seconds):
        began_s, due_ms = perf_counter(), _now_ms() + _AHEAD_MS
        _put_later(
            *(run, ledger, _ON_TIME),
            [due_ms + at * 50 // each for at in range(each)],
            parameters.size,
        )
        time.sleep(max(0.0, began_s + _FEW_S - perf_counter()))
    sent = int(ledger.sent[_QUEUES.index(_ON_TIME)])
    _wait(run, _ON_TIME, sent)
    for _, batch in run.target.read_to_end({_ON_TIME: 0}):
        for message in batch:
            late_ms = message.store_time_ms - int(message.properties["TIMER_DELIVER_MS"])
            if late_ms < 0:
                raise CheckFailedError(f"{-late_ms} ms before its time: {message}")
            histogram.add(late_ms / 1000)


def _all_at_once(run: Run, parameters: Parameters, ledger: Ledger) -> None:
    count = parameters.together
    alone = run.recorder.latency("a put alone")
    run.recorder.begin("puts alone")
    alone_rate = _beside(run, ledger, alone, lambda: time.sleep(parameters.alone_seconds))
    run.recorder.begin(f"{count:,} due at one instant")
    rate = run.recorder.figures["put, 1,024 a call"].value
    due_ms = _now_ms() + _AHEAD_MS + round(1500 * count / rate)
    _put_later(run, ledger, _TOGETHER, [due_ms] * count, parameters.size)
    if _now_ms() > due_ms:
        run.recorder.notes.append("some of those due at one instant were put after it")
    run.recorder.begin("over that instant it is stopped")

    def while_stopped() -> None:
        time.sleep(max(0.0, (due_ms - _now_ms()) / 1000))

    run.reopen(meanwhile=while_stopped)
    run.recorder.begin("they are put")
    _fired(run, "fired after a stop", lambda: _wait(run, _TOGETHER, count // 2))
    run.recorder.begin("they are put, beside others")
    histogram = run.recorder.latency("a put beside them")
    beside_rate = _fired(
        *(run, "fired after a stop, beside puts"),
        lambda: _beside(run, ledger, histogram, lambda: _wait(run, _TOGETHER, count)),
    )
    run.recorder.figure("puts beside them over puts alone", beside_rate / alone_rate)
    _check_order(run, ledger, count)


def _fired(run: Run, figure: str, work: Callable[[], T]) -> T:
    """Note how many messages a second are delivered while `work` runs."""

    def delivered() -> int:
        return run.target.bounds([_TOGETHER])[_TOGETHER].max_offset

    began_s, before = perf_counter(), delivered()
    result = work()
    run.recorder.figure(figure, (delivered() - before) / (perf_counter() - began_s), "messages/s")
    return result


def _beside(run: Run, ledger: Ledger, histogram: Histogram, work: Callable[[], object]) -> float:
    """Put messages one after the other while `work` runs. Returns puts a second."""
    done = threading.Event()
    puts = 0

    def put() -> None:
        nonlocal puts
        writer = run.target.writer()
        while not done.is_set():
            (message,) = _messages(ledger, _BESIDE, 1, 100)
            began_s = perf_counter()
            writer.write([message], _refused_none)
            writer.flush()
            histogram.add(perf_counter() - began_s)
            puts += 1
        writer.close()

    began_s = perf_counter()
    with Workers() as workers:
        workers.start(put)
        try:
            work()
        finally:
            done.set()
    return puts / (perf_counter() - began_s)


def _refused_none(errors: Mapping[int, Exception]) -> None:
    if errors:
        raise CheckFailedError(f"a put was refused: {errors}")


def _check_order(run: Run, ledger: Ledger, count: int) -> None:
    """Check that messages due at one instant are delivered in the order in which they were put."""
    expected = 0
    for _, batch in run.target.read_to_end({_TOGETHER: 0}):
        for message in batch:
            found = ledger.bodies.check(message.body)
            if found != (_QUEUES.index(_TOGETHER), expected):
                raise CheckFailedError(f"{found} where number {expected} was due")
            expected += 1
    if expected != count:
        raise CheckFailedError(f"{expected} of {count} were put")


def _wait(run: Run, queue: Queue, count: int) -> None:
    wait_until(
        lambda: run.target.bounds([queue])[queue].max_offset >= count,
        f"{queue} has {count} messages",
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
