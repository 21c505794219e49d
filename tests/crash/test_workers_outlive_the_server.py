"""Workers of a shared group go on through kills of the server."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from kvcq_client import Client, Delivery
from tests.support.free_port import free_port
from tests.support.server_process import ServerProcess
from tests.support.until import wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.crash, pytest.mark.integration]


@pytest.mark.slow
def test_what_a_worker_has_stays_its_own_and_nothing_is_lost(tmp_path: Path) -> None:
    port = free_port()
    done: Counter[int] = Counter()
    first_ten = threading.Event()
    go_on = threading.Event()

    def work(delivery: Delivery) -> None:
        number = int(delivery.body)
        if number < 4:  # these are at work while the server is away
            go_on.wait(60)
            assert delivery.deliveries == 1
        done[number] += 1
        if len(done) >= 10:
            first_ten.set()

    server = ServerProcess(tmp_path, port=port)
    try:
        server.wait_for("ready")
        with Client(f"127.0.0.1:{port}") as client:
            with client.producer() as producer:
                for number in range(300):
                    producer.send("jobs", b"%d" % number)
            receiver = client.receiver("jobs", group="g")
            running = threading.Thread(target=receiver.run, args=(work,), kwargs={"concurrency": 8})
            running.start()
            assert first_ten.wait(60)
            for _ in range(2):
                server.__exit__()  # kills it
                server = ServerProcess(tmp_path, port=port)
                server.wait_for("ready")
            go_on.set()
            # What was on its way when the server was killed comes when its time is over.
            wait_until(lambda: len(done) == 300, limit_s=100)
            wait_until(lambda: sum(q.lag for q in client.describe_group("g").queues) == 0)
            receiver.close()
            running.join()
    finally:
        server.__exit__()
    assert {done[number] for number in range(4)} == {1}
