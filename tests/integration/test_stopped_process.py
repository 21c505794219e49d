"""A process that stands still over the times of delayed messages: each is delivered, once."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from kvcq_client import Client
from tests.support.server_process import ServerProcess
from tests.support.until import wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.slow]

STOPPED_S = 30.0
COUNT = 300


def test_what_was_due_while_the_process_was_stopped_is_delivered_once(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "store") as server:
        server.wait_for("ready")
        with Client(server.target) as client:
            client.create_topic("later", 1)
            for number in range(COUNT):
                # The first ones before it stops, the last ones when it goes on.
                after = timedelta(milliseconds=number * 120)
                client.put_delayed("later", b"%d" % number, deliver_at=after)
            os.kill(server.pid, signal.SIGSTOP)
            threading.Event().wait(STOPPED_S)
            os.kill(server.pid, signal.SIGCONT)
            wait_until(lambda: client.statistics()["store.timers_pending"] == 0)
            pulled = client.pull("later", 0, 0, max_messages=2 * COUNT)
            found = [int(message.body) for message in pulled.messages]
        assert Counter(found) == Counter(range(COUNT))
        assert found == sorted(found), "who is due first is delivered first"
