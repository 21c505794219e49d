"""The clock of a real server is set while it runs, and while it is stopped."""

from __future__ import annotations

import re
import signal
import threading
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from kvcq_client import Client, Message
from migration.check import check_store
from store.base import SystemClock
from tests.support.server_process import ServerProcess
from tests.support.skewed_clock import Skew

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


_YEAR_S = 365 * 86_400
_MINUTES_MS = 600_000


@contextmanager
def serving(root: Path) -> Iterator[tuple[ServerProcess, Client]]:
    flags = {
        "store.reserved_hours": "72",
        "store.delete_when_hours": ",".join(map(str, range(24))),
        "server.metrics_port": "0",
    }
    with ServerProcess(
        root,
        *(part for name, value in flags.items() for part in ("--set", f"{name}={value}")),
        module="tests.support.skewed_server",
    ) as server:
        server.wait_for("ready")
        with Client(server.target) as client:
            yield server, client
        server.send(signal.SIGTERM)
        assert server.wait() == 0


def put(client: Client, text: bytes) -> int:
    """Store time of the message."""
    return client.put(Message("T", text, queue_id=0)).store_time_ms


def expired(client: Client) -> None:
    """A run of retention has ended."""
    assert list(client.jobs.watch(client.jobs.expire().job_id))


@pytest.mark.slow
def test_a_clock_that_jumps_drops_nothing_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    skew = Skew(tmp_path / "skew")
    monkeypatch.setenv("KVCQ_TEST_SKEW", str(skew.path))
    with serving(root) as (server, client):
        for _ in range(5):  # two segments
            put(client, bytes(2_000_000))
        assert readiness(server) == "ok"
        skew.set(_YEAR_S)
        assert put(client, b"ahead") > SystemClock().now_ms() + 360 * 86_400_000
        expired(client)
        found = client.statistics()
        assert found["store.log_start_offset"] == 0
        assert found["store.clock_jumped_s"] > 360 * 86_400
        looked = threading.Event()
        while (said := readiness(server)) == "ok":  # it looks once a second
            looked.wait(0.05)
        assert said.startswith("ok, but the clock jumped forward")
    with serving(root) as (server, client):  # another process does not believe it either
        expired(client)
        assert client.statistics()["store.log_start_offset"] == 0
        skew.set(0)
        assert abs(put(client, b"correct again") - SystemClock().now_ms()) < _MINUTES_MS
        assert client.statistics()["store.time_falls"] == 1
    with serving(root) as (_, client):
        assert abs(put(client, b"later") - SystemClock().now_ms()) < _MINUTES_MS
        assert client.statistics()["store.clock_behind_s"] == 0
    assert check_store(root) == []


def readiness(server: ServerProcess) -> str:
    [port] = re.findall(r"metrics: http://127\.0\.0\.1:(\d+)", "".join(server.errors))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
        text: str = answer.read().decode().strip()
    return text
