"""What a backup at full speed, and scrubbing, take from producers: with and without, in turns."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

from kvcq_bench.targets.remote import OwnServer
from kvcq_client import Client
from kvcq_client.pb.v1 import jobs_pb2
from tests.benchmarks.measure import BATCH, BODY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kvcq_client import Producer
    from tests.benchmarks.measure import Bench

    #: Begins the job on the server of that client.
    Begin = Callable[[Client], jobs_pb2.Job]

#: What there is to copy or to verify when a turn begins, and how long the turn lasts.
_MESSAGES = 1_500_000
_TURN_S = 4.0
_FULL_SPEED = 1 << 40
_BODY = os.urandom(BODY_BYTES)
_STORE = {"reserved_hours": 720.0, "segment_bytes": 256 << 20}
#: How often it is asked whether the job still runs.
_LOOK_S = 0.25


def put_beside_backup(bench: Bench) -> None:
    """To another directory of the same disk, as fast as it goes."""
    place = bench.directory / "backups"
    _put_beside(
        bench,
        "a backup at full speed",
        lambda client: client.jobs.backup(bytes_per_s=_FULL_SPEED),
        0.8,
        {"server.backup_to": str(place)},
    )


def put_beside_scrub(bench: Bench) -> None:
    """At the rate of the server's settings."""
    _put_beside(bench, "scrubbing", lambda client: client.jobs.scrub(), 0.95, {})


def _put_beside(
    bench: Bench, name: str, begin: Begin, wanted: float, settings: dict[str, object]
) -> None:
    """Pairs of turns, each pair on a server of its own, so that they all begin alike; the one
    that comes first changes with each pair."""
    plain: list[float] = []
    beside: list[float] = []
    for number in range(bench.rounds * 2):
        directory = bench.fresh(f"pair-{number}")
        server = OwnServer(directory, {**_STORE, **settings}, "server")
        try:
            with Client(server.address) as client, client.producer() as producer:
                _put(producer, bench.amount(_MESSAGES, 2_000))
                producer.flush()
                for with_job in (False, True) if number % 2 else (True, False):
                    if with_job:
                        beside.append(_turn_beside(bench, client, producer, begin))
                    else:
                        plain.append(_turn_alone(bench, client, producer))
        finally:
            server.close()
            for left in (directory, bench.directory / "backups"):
                shutil.rmtree(left, ignore_errors=True)
    bench.beside(f"batching producer, beside {name}", beside, plain, wanted)


def _turn_alone(bench: Bench, client: Client, producer: Producer) -> float:
    """As often as beside a job something is asked: the producer waits for the answer."""
    return _turn(bench, producer, lambda: client.jobs.list() is not None)


def _turn_beside(bench: Bench, client: Client, producer: Producer, begin: Begin) -> float:
    """While the job runs, a turn long at most."""
    with _job(client, begin) as is_running:
        return _turn(bench, producer, is_running)


@contextmanager
def _job(client: Client, begin: Begin) -> Iterator[Callable[[], bool]]:
    """Whether it still runs; it does not after the block."""
    job_id = begin(client).job_id
    try:
        yield lambda: client.jobs.get(job_id).status == jobs_pb2.JOB_STATUS_RUNNING
    finally:
        client.jobs.cancel(job_id)
        for job in client.jobs.watch(job_id):
            assert job.status != jobs_pb2.JOB_STATUS_FAILED, job.error


def _turn(bench: Bench, producer: Producer, goes_on: Callable[[], bool]) -> float:
    """Messages a second."""
    least_s = _TURN_S * min(1.0, bench.scale)
    count, began_s = 0, perf_counter()
    looked_s = began_s
    while (now_s := perf_counter()) - began_s < least_s or not count:
        if now_s - looked_s >= _LOOK_S:
            if not goes_on():
                break
            looked_s = now_s
        count += _put(producer, BATCH)
    producer.flush()
    return count / (perf_counter() - began_s)


def _put(producer: Producer, count: int) -> int:
    """So many are on their way."""
    for _ in range(count):
        producer.send("bench", _BODY)
    return count
