"""What metrics cost puts in batches: two servers in turns, of one of them metrics are asked for."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from kvcq_bench.targets.remote import OwnServer
from kvcq_client import Client
from tests.benchmarks.measure import BATCH, BODY_BYTES, Row

if TYPE_CHECKING:
    from tests.benchmarks.measure import Bench

#: In a process of its own, so that it takes nothing from the client. Prometheus asks every 15 s.
_SCRAPER = """
import sys, time, urllib.request
while True:
    time.sleep(1)
    urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/metrics").read()
"""
_WANTED = 1.02
_STORE = {"reserved_hours": 720.0, "segment_bytes": 256 << 20}


class _Round(NamedTuple):
    """One turn of one server."""

    messages_per_s: float
    cpu_us: float  # of the server's process, for each message


def put_with_metrics(bench: Bench) -> None:
    """The client's producer, 1 KiB, ASYNC. Processor time tells more than the rate: the client
    shares the machine, and its pace is chance."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    plain = OwnServer(bench.fresh("plain"), _STORE, "server")
    settings = {**_STORE, "server.metrics_port": port}
    watched = OwnServer(bench.fresh("watched"), settings, "server")
    rounds: dict[bool, list[_Round]] = {False: [], True: []}
    try:
        for server in (plain, watched):
            _put(bench, server)  # warm
        for number in range(bench.rounds * 2):
            # First one, then the other, then the other way round.
            for with_metrics in (False, True) if number % 2 else (True, False):
                if not with_metrics:
                    rounds[False].append(_put(bench, plain))
                    continue
                scraper = subprocess.Popen([sys.executable, "-c", _SCRAPER, str(port)])
                try:
                    rounds[True].append(_put(bench, watched))
                finally:
                    scraper.kill()
                    scraper.wait()
    finally:
        plain.close()
        watched.close()
    # The least: whatever else runs on the machine only adds to it.
    cpu_us, plain_cpu_us = (min(one.cpu_us for one in rounds[on]) for on in (True, False))
    rate, plain_rate = (median(one.messages_per_s for one in rounds[on]) for on in (True, False))
    bench.rows += [
        Row(
            "processor time of a put in a batch, with metrics asked for every second",
            cpu_us,
            "us",
            "below 1.02 of that without",
            cpu_us < _WANTED * plain_cpu_us,
            plain_cpu_us,
            "without metrics",
        ),
        Row(
            "batching producer, with metrics asked for every second",
            rate,
            "messages/s",
            "0.95 of that without",
            rate >= 0.95 * plain_rate,
            plain_rate,
            "without metrics",
        ),
    ]


def _put(bench: Bench, server: OwnServer) -> _Round:
    count = bench.amount(400_000, 20_000)  # processor time comes in ticks of 10 ms
    body = os.urandom(BODY_BYTES)
    with Client(server.address) as client, client.producer() as producer:
        before_s = server.resources().cpu_s or 0.0

        def puts() -> int:
            for _ in range(count // BATCH):
                for _ in range(BATCH):
                    producer.send("bench", body)
            producer.flush()
            return count // BATCH * BATCH

        rate = bench.rate(puts)
        used_s = (server.resources().cpu_s or 0.0) - before_s
    return _Round(rate, used_s / (count // BATCH * BATCH) * 1e6)
