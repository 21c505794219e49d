"""Ours with other settings, or beside other work: each does a few works, which are held against
the same of ours without it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from kvcq_bench.report import Goal
from kvcq_client import Client, Message, Start
from tests.benchmarks.processes import free_port
from tests.benchmarks.system import OURS, System
from tests.benchmarks.systems.ours import CLIENT, KvcqServer
from tests.benchmarks.timing import BODY_BYTES
from tests.support.certificates import Authority
from tests.support.users import add_users, secret_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.benchmarks.system import More

_BATCHES, _CALLERS = "put, batches of 128", "put, 64 callers, one a call"
_UNARY, _CONSUMER = "put, 64 unary calls in flight", "read back, consumer"
#: What there is to copy, to verify or to read when a work begins.
_BACKLOG = 1_500_000
_FULL_SPEED = 1 << 40


class _SecuredServer(KvcqServer):
    """TLS, signatures, rights."""

    def __init__(self, directory: Path, *, durable: bool) -> None:
        authority = Authority(directory / "pki")
        cert, key = authority.issue()
        self._ca = authority.ca
        flags = ("--access", "--tls-cert", str(cert), "--tls-key", str(key))
        super().__init__(directory, durable=durable, flags=flags)
        add_users(directory / "store", {"app": ["publish topic *"]}, segment_bytes=1 << 30)
        self.settings = "TLS, signed calls, rights checked"

    @property
    def address(self) -> str:
        return f"{super().address} {self._ca} app {secret_of('app')}"


class _WatchedServer(KvcqServer):
    """With metrics, for Prometheus."""

    def __init__(self, directory: Path, *, durable: bool) -> None:
        self.metrics_port = free_port()
        flags = ("--set", f"server.metrics_port={self.metrics_port}")
        super().__init__(directory, durable=durable, flags=flags)


class _BackedUpServer(KvcqServer):
    """With a place for backups."""

    def __init__(self, directory: Path, *, durable: bool) -> None:
        self.place = directory / "backups"
        super().__init__(
            directory, durable=durable, flags=("--set", f"server.backup_to={self.place}")
        )


def _fill(server: KvcqServer, scale: float) -> None:
    batch = [Message("backlog", bytes(BODY_BYTES), 0)] * 1000
    with Client(server.address) as client, client.producer() as producer:
        for _ in range(max(2, round(_BACKLOG / 1000 * scale))):
            producer.send_many(batch)


def _drop_cached_log(directory: Path) -> None:
    """Drop the log's pages from the page cache, except dirty ones and those that a process has
    mapped and touched. So call it right after the store was opened."""
    for path in sorted((directory / "store" / "commitlog").glob("*")):
        with suppress(FileNotFoundError):  # a prepared segment got its name
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def _fill_and_forget(server: KvcqServer, scale: float) -> None:
    """The backlog is on disk only: nothing of it is mapped or cached."""
    _fill(server, scale)
    server.stop()
    server.start()
    _drop_cached_log(server.directory)


@contextmanager
def _scraped(server: _WatchedServer) -> Iterator[More]:
    """Every second; Prometheus asks every fifteen."""
    code = (
        "import sys, time, urllib.request\n"
        "while True: urllib.request.urlopen(sys.argv[1]).read(); time.sleep(1)"
    )
    url = f"http://127.0.0.1:{server.metrics_port}/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert answer.status == 200
    scraper = subprocess.Popen([sys.executable, "-c", code, url])
    try:
        yield {}
    finally:
        scraper.kill()
        scraper.wait()


def _beside_job(start: Callable[[Client], str]) -> Callable[[KvcqServer], More]:
    @contextmanager
    def beside(server: KvcqServer) -> Iterator[More]:
        with Client(server.address) as client:
            job_id = start(client)
            try:
                yield {}
            finally:
                client.jobs.cancel(job_id)
                list(client.jobs.watch(job_id))
        shutil.rmtree(server.directory / "backups", ignore_errors=True)

    return beside  # type: ignore[return-value]  # a context


@contextmanager
def _beside_reader(server: KvcqServer) -> Iterator[More]:
    """A consumer far behind, in a process of its own, as it is for its user."""
    more: More = {}
    reader = subprocess.Popen(
        [sys.executable, "-m", __name__, server.address], stdout=subprocess.PIPE, text=True
    )
    assert reader.stdout is not None
    assert reader.stdout.readline()
    try:
        yield more
    finally:
        reader.send_signal(signal.SIGTERM)
        more["read by the consumer"] = (json.loads(reader.communicate()[0]), "messages/s")


def _read_backlog(address: str) -> None:
    """Until SIGTERM, again and again; then its messages a second are printed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    count, began_s = 0, 0.0
    try:
        with Client(address) as client:
            while True:
                with client.consumer("backlog", start=Start.EARLIEST) as consumer:
                    for batch in consumer.batches_to_end():
                        if not began_s:
                            began_s = time.perf_counter()
                            sys.stdout.write("reads\n")
                            sys.stdout.flush()
                        count += len(batch)
    finally:
        sys.stdout.write(json.dumps(count / (time.perf_counter() - began_s)))
        sys.stdout.flush()


def _goal(
    work: str,
    bound: float,
    system: str,
    reason: str,
    *,
    figure: str = "rate",
    at_most: bool = False,
) -> Goal:
    return Goal(work, bound, reason, figure, at_most, of=OURS, system=f"{OURS}-{system}")


def _variant(
    name: str, title: str, server: Callable[..., KvcqServer], *goals: Goal, **more: object
) -> System:
    works = frozenset(goal.work for goal in goals)
    return System(
        f"{OURS}-{name}",
        title,
        server,
        CLIENT,
        loops=OURS,
        works=works,
        goals=list(goals),
        **more,  # type: ignore[arg-type]
    )


_MAIN = "main process, processor time"

SYSTEMS = [
    _variant(
        "access",
        "with TLS and users",
        _SecuredServer,
        _goal(_BATCHES, 0.7, "access", "security must not be a reason to leave it out"),
        _goal(_CALLERS, 0.6, "access", "each call is signed and checked"),
    ),
    _variant(
        "fronts",
        "behind a front",
        partial(KvcqServer, flags=("--workers", "2")),
        _goal(_UNARY, 0.5, "fronts", "a front takes gRPC's work", figure=_MAIN, at_most=True),
        _goal(_CALLERS, 1.1, "fronts", "joined puts cost no more", figure=_MAIN, at_most=True),
        _goal(_CONSUMER, 1.1, "fronts", "bytes pass through", figure=_MAIN, at_most=True),
    ),
    _variant(
        "metrics",
        "scraped every second",
        _WatchedServer,
        _goal(_BATCHES, 0.95, "metrics", "metrics are always on in production"),
        beside=_scraped,
    ),
    _variant(
        "backup",
        "beside a backup at full speed",
        _BackedUpServer,
        _goal(_BATCHES, 0.8, "backup", "a backup runs beside the day's work"),
        prepare=_fill,
        beside=_beside_job(lambda client: client.jobs.backup(bytes_per_s=_FULL_SPEED).job_id),
    ),
    _variant(
        "scrub",
        "beside scrubbing",
        KvcqServer,
        _goal(_BATCHES, 0.95, "scrub", "scrubbing runs all the time"),
        prepare=_fill,
        beside=_beside_job(lambda client: client.jobs.scrub().job_id),
    ),
    _variant(
        "behind",
        "beside a consumer far behind",
        KvcqServer,
        _goal(_BATCHES, 0.9, "behind", "a consumer far behind must not stop producers"),
        prepare=_fill_and_forget,
        beside=_beside_reader,
    ),
]

if __name__ == "__main__":
    _read_backlog(sys.argv[1])
