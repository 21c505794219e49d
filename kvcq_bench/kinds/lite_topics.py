"""Lite topics by the million: with subscribers, new ones, and expiring ones.

Clients of one group subscribe to lite topics by name, and a wildcard group receives from all. The
first message of a lite topic creates it, so lite topics are numbered like messages.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from kvcq_bench.errors import CheckFailedError, NotPossibleHereError
from kvcq_bench.footprint import note_growth, note_made, restart
from kvcq_bench.load import Plan, in_turn, produce_all, read_back, wait_until
from kvcq_bench.targets import RemoteTarget
from kvcq_client import LiteSettings, Message, Queue, lite_queue

if TYPE_CHECKING:
    from kvcq_bench.ledger import Ledger
    from kvcq_bench.run import Run
    from kvcq_client import Client, LiteReceiver

_PARENT = "sessions"
_HOMES = [Queue(_PARENT, number) for number in range(4)]
#: Messages of one put.
_BATCH = 1000
#: Lite topics that one client is subscribed to.
_QUOTA = 10_000
_LOOK_S = 0.1
#: Longest time until the first message of a lite topic is received.
_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Parameters:
    lite_topics: int
    subscribed: int  # of these, by name
    first_messages: int  # to new lite topics, one after the other
    ended: int  # how many expire
    expiry_s: float = 60.0  # idle time after which they expire; the shortest that a server allows
    patience_s: float = 180.0  # a server that was started expires none earlier
    size: int = 100


def run_lite_topics(run: Run) -> None:
    """Figures: first messages/s; memory, disk and restart time with all lite topics;
    subscriptions/s and their memory; time until a wildcard subscriber has the first message of a
    lite topic; the server's memory with all of that; expired lite topics/s, and memory meanwhile.
    """
    parameters = run.scenario.parameters_as(Parameters)
    if not isinstance(run.target, RemoteTarget):
        raise NotPossibleHereError("clients are subscribed: it needs a server, not --embedded")
    run.target.create_topics({_PARENT: len(_HOMES)})
    run.target.client.create_lite_parent(_PARENT)
    ledger = run.ledger(len(_HOMES), parameters.size)
    empty = run.recorder.point(0)
    _fill(run, parameters, ledger)
    filled_s = perf_counter()
    note_made(run.recorder, parameters.lite_topics, "lite topics", empty)
    restart(run, parameters.lite_topics, "lite topics", empty)
    idle_s = max(filled_s + parameters.expiry_s, perf_counter() + parameters.patience_s)
    client = run.target.client
    with ExitStack() as receivers:
        wildcard = receivers.enter_context(_wildcard(run, parameters, client))
        with ExitStack() as subscribers:
            _subscribe(run, parameters, client, subscribers)
            _first_messages(run, parameters, ledger, client, wildcard)
            left = int(run.target.statistics()["store.lite_subscriptions"])
            if left < parameters.subscribed:
                raise CheckFailedError(f"{left:,} of {parameters.subscribed:,} are subscribed to")
            if used := run.recorder.used():
                run.recorder.figure("resident memory with all", used["resident_bytes"] / 1e6, "MB")
        _end(run, parameters, client, idle_s)
    run.recorder.begin("read back")
    read_back(run, ledger, _HOMES)


def _names(stream: int, number: int) -> tuple[str, ...]:
    return (lite_queue(_PARENT, _name(number * len(_HOMES) + stream)),)


def _name(number: int) -> str:
    return f"s{number}"


def _fill(run: Run, parameters: Parameters, ledger: Ledger) -> None:
    run.recorder.begin(f"first message to {parameters.lite_topics:,} lite topics")
    run.touch_memory()
    choices = in_turn(range(len(_HOMES)), parameters.lite_topics, _BATCH)
    plan = Plan(_HOMES, choices, parameters.size, light_queues=_names)
    with run.recorder.rate("first messages, 1,000 a put", parameters.lite_topics, "topics/s"):
        produce_all(run, ledger, [plan])


def _wildcard(run: Run, parameters: Parameters, client: Client) -> LiteReceiver:
    """A receiver of a wildcard group that has passed through all lite topics, and finds nothing."""
    run.recorder.begin(f"a wildcard group comes to {parameters.lite_topics:,} lite topics")
    settings = LiteSettings(_PARENT, wildcard=True)
    client.create_group("wildcard", from_latest=True, lite=settings)
    receiver = client.lite_receiver(_PARENT, group="wildcard")
    started_s = perf_counter()
    is_there = False
    while not is_there:
        if found := receiver.take(1, _LOOK_S):
            raise CheckFailedError(f"a message from before the group: {found[0].message}")
        numbers = run.target.statistics()
        is_there = bool(numbers["store.lite_clients"] and not numbers["store.lite_passes"])
    seconds = perf_counter() - started_s
    run.recorder.figure("a wildcard group comes to all", seconds, "s")
    return receiver


def _subscribe(run: Run, parameters: Parameters, client: Client, kept: ExitStack) -> None:
    count = parameters.subscribed
    run.recorder.begin(f"{count:,} subscriptions")
    client.create_group("named", lite=LiteSettings(_PARENT, client_quota=_QUOTA))
    before = run.recorder.used()
    with run.recorder.rate("subscribed to", count, "topics/s"):
        for first in range(0, count, _QUOTA):
            names = [_name(number) for number in range(first, min(first + _QUOTA, count))]
            receiver = kept.enter_context(client.lite_receiver(_PARENT, group="named"))
            receiver.subscribe(names)
            run.recorder.count("subscribed", len(names))
    note_growth(run.recorder, f"{count:,} subscriptions", before, run.recorder.used())


def _first_messages(
    run: Run, parameters: Parameters, ledger: Ledger, client: Client, receiver: LiteReceiver
) -> None:
    """Put first messages of new lite topics, each after the previous one was received."""
    run.recorder.begin(f"{parameters.first_messages:,} first messages, one after the other")
    histogram = run.recorder.latency("first message of a lite topic, to a subscriber of all")
    home = _HOMES[0]
    for _ in range(parameters.first_messages):
        number = int(ledger.sent[0])
        ledger.sent[0] += 1
        body = ledger.bodies.make(0, number, parameters.size)
        light = _names(0, number)
        began_s = perf_counter()
        client.put(Message(home.topic, body, home.queue_id, light_queues=light))
        found = receiver.take(1, _TIMEOUT_S)
        histogram.add(perf_counter() - began_s)
        if [(one.body, one.message.queue.topic) for one in found] != [(body, *light)]:
            raise CheckFailedError(f"{found} where number {number} was due")
        found[0].acknowledge()


def _end(run: Run, parameters: Parameters, client: Client, idle_s: float) -> None:
    """Wait until lite topics without subscribers are idle, and measure how fast they expire."""
    run.recorder.begin("lite topics become idle")
    time.sleep(max(0.0, idle_s - perf_counter()))
    run.recorder.begin(f"{parameters.ended:,} idle lite topics end")

    def ended() -> float:
        return run.target.statistics()["store.lite_topics_expired"]

    before, due, at_s = run.recorder.used(), ended() + parameters.ended, run.recorder.elapsed_s
    with run.recorder.rate("idle lite topics ended", parameters.ended, "topics/s"):
        client.create_lite_parent(_PARENT, expiry_s=parameters.expiry_s)
        wait_until(lambda: ended() >= due, "idle lite topics end")
    samples = [row for row in run.recorder.samples if row["at_s"] >= at_s]
    if before and samples:
        growth = max(row["private_bytes"] for row in samples) - before["private_bytes"]
        run.recorder.figure("private memory, growth while they end, most", growth / 1e6, "MB")
