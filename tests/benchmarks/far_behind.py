"""Producers beside a consumer far behind, which reads from the disk; in turns.

The consumer is a process of its own, as it is for its user: in the producer's it would take turns
with it for one interpreter.
"""

from __future__ import annotations

import os
from collections import deque
from statistics import median
from time import perf_counter, sleep
from typing import TYPE_CHECKING

from kvcq_bench.disk import drop_cached_log
from kvcq_bench.targets.remote import OwnServer
from kvcq_client import Client, Message, Queue
from tests.benchmarks.measure import BATCH, BODY_BYTES, Row
from tests.benchmarks.own_process import own_process

if TYPE_CHECKING:
    from pathlib import Path

    from kvcq_client import Producer, SendingMany
    from tests.benchmarks.measure import Bench
    from tests.benchmarks.own_process import OwnProcess, Turns

_BACKLOG = 2_000_000
_TURN_S = 3.0
#: However small the scale: a consumer must get its first answer within a turn.
_LEAST_TURN_S = 0.25
#: Pairs of turns a round: the machine swings from one to the next.
_PAIRS = 4
_IN_FLIGHT = 16
_WAIT_S = 0.2
_STORE = {"reserved_hours": 720.0, "segment_bytes": 256 << 20}


def put_beside_consumer(bench: Bench) -> None:
    """At full speed, and at half of it."""
    directory = bench.fresh("far-behind")
    server = OwnServer(directory, _STORE, "server")
    try:
        server.create_topics({"backlog": 1, "bench": 1})
        with Client(server.address) as client, client.producer() as producer:
            _put(producer, "backlog", count=bench.amount(_BACKLOG, 5_000))
        server.reopen()  # else what it has mapped stays in memory
        with (
            Client(server.address) as client,
            client.producer() as producer,
            own_process(_consume, server.address) as consumer,
        ):
            _measure(bench, directory, producer, consumer)
    finally:
        server.close()


def _measure(bench: Bench, directory: Path, producer: Producer, consumer: OwnProcess) -> None:
    seconds = max(_LEAST_TURN_S, _TURN_S * min(1.0, bench.scale))
    alone: list[float] = []
    beside: list[float] = []
    read: list[float] = []
    for number in range(bench.rounds * _PAIRS):
        drop_cached_log(directory)
        for with_consumer in (False, True) if number % 2 else (True, False):
            if with_consumer:
                consumer.begin(seconds)
                beside.append(_put(producer, "bench", seconds))
                read.append(consumer.answer())
            else:
                alone.append(_put(producer, "bench", seconds))
    half = median(alone) / 2
    at_half: list[float] = []
    read_at_half: list[float] = []
    read_alone: list[float] = []
    for _ in range(bench.rounds):
        drop_cached_log(directory)
        consumer.begin(seconds)
        at_half.append(_put(producer, "bench", seconds, pace=half))
        read_at_half.append(consumer.answer())
        read_alone.append(consumer.turn(seconds))
    producers = "batching producer, beside a consumer far behind"
    bench.beside(producers, beside, alone, 0.9)
    bench.rows.append(
        Row(
            f"{producers}, at half of that speed",
            median(at_half),
            "messages/s",
            "0.95 of that without",
            median(at_half) >= 0.95 * half,
            half,
            "half of what it puts without",
        )
    )
    for work, rates in (("", read), (", at half of that speed", read_at_half)):
        bench.rows.append(
            Row(
                f"that consumer, beside the producer{work}",
                median(rates),
                "messages/s",
                "no bound",
                met=True,
                probe=median(read_alone),
                probe_of="the same without a producer",
            )
        )


def _put(
    producer: Producer,
    topic: str,
    seconds: float = float("inf"),
    *,
    count: float = float("inf"),
    pace: float = float("inf"),
) -> float:
    """Messages a second."""
    batch = [Message(topic, os.urandom(BODY_BYTES), 0)] * BATCH
    under_way: deque[SendingMany] = deque()
    put, began_s = 0, perf_counter()
    while put < count and (now_s := perf_counter() - began_s) < seconds:
        if (ahead_s := put / pace - now_s) > 0:
            sleep(ahead_s)
        under_way.append(producer.send_many(batch))
        put += BATCH
        if len(under_way) > _IN_FLIGHT:
            under_way.popleft().result()
    for last in under_way:
        last.result()
    return put / (perf_counter() - began_s)


def _consume(address: str) -> Turns:
    """Messages a second, read in so many seconds."""
    backlog = Queue("backlog", 0)
    at = 0
    with Client(address) as client, client.consumer({backlog: at}) as consumer:
        consumer.batch()
        consumer.leave([backlog])
        seconds = yield 0.0
        while True:
            count, began_s = 0, perf_counter()
            consumer.follow({backlog: at})
            while perf_counter() - began_s < seconds or not count:  # a rate needs an answer
                read = len(consumer.batch(_WAIT_S))
                count += read
                if not read:  # once through, it begins again
                    consumer.seek({backlog: 0})
            took_s = perf_counter() - began_s
            at = consumer.positions()[backlog]
            consumer.leave([backlog])
            seconds = yield count / took_s
