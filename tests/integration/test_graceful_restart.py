"""A restart in order while a producer goes on: how long it waits, and that nothing is lost.

`pytest -s` prints how long the longest wait was.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from kvcq_client import Client, KvcqError, Start
from tests.support.free_port import free_port
from tests.support.server_process import ServerProcess

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration

#: Seconds, on a machine that does many other things; alone it takes two.
MOST_S = 40
_BODY = bytes(1024)


class Load:
    """A producer that sends until it is told to end, and when each batch was acknowledged."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent = 0
        self.longest_wait_s = 0.0
        self.went_on = threading.Event()
        self.failures: list[KvcqError] = []

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Repeatable."""
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with Client(self._target, timeout_s=60) as client, client.producer() as producer:
                last = time.monotonic()
                while not self._end.is_set():
                    sending = [producer.send("orders", _BODY) for _ in range(200)]
                    for one in sending:
                        one.result()
                    self.sent += len(sending)
                    now = time.monotonic()
                    self.longest_wait_s = max(self.longest_wait_s, now - last)
                    last = now
                    self.went_on.set()
        except KvcqError as error:  # told by the test
            self.failures.append(error)
            self.went_on.set()

    def wait_for_more(self) -> None:
        self.went_on.clear()
        assert self.went_on.wait(60)
        assert self.failures == []


def test_a_restart_takes_seconds_and_loses_nothing(tmp_path: Path) -> None:
    port = free_port()
    with ServerProcess(tmp_path, port=port) as first:
        first.wait_for("ready")
        with Load(first.target) as load:
            for _ in range(20):
                load.wait_for_more()
            first.send(signal.SIGTERM)
            assert first.wait() == 0
            with ServerProcess(tmp_path, port=port) as second:
                second.wait_for("ready")
                for _ in range(5):
                    load.wait_for_more()
                load.stop()
                assert load.failures == []
                sys.stdout.write(f"\nthe producer's longest wait: {load.longest_wait_s:.1f} s\n")
                assert load.longest_wait_s < MOST_S
                with (
                    Client(second.target, timeout_s=60) as client,
                    client.consumer("orders", start=Start.EARLIEST) as consumer,
                ):
                    assert sum(1 for _ in consumer.to_end()) == load.sent
                second.send(signal.SIGTERM)
                assert second.wait() == 0
