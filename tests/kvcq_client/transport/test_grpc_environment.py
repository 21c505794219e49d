"""What gRPC is told by the environment: seen in a process of its own, which imports us first."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kvcq_client.transport.grpc_environment import IS_MEASURED, MEASURED

if TYPE_CHECKING:
    from tests.support.serving import Served

ROOT = Path(__file__).parents[3]

PUTS = 20
#: How often threads of the newer way were woken, while so many puts were made one by one. They
#: also wake by the clock: the round that counts is the one with the least of that.
WOKEN = """
import pathlib, re, sys
from kvcq_client import Client, Message

def woken():
    tasks = list(pathlib.Path("/proc/self/task").iterdir())
    newer = [task for task in tasks if (task / "comm").read_text() == "event_engine\\n"]
    statuses = [(task / "status").read_text() for task in newer]
    return sum(int(re.search(r"voluntary_ctxt_switches:\\s+(\\d+)", one)[1]) for one in statuses)

with Client(sys.argv[1]) as client:
    client.create_topic("t", 1)
    rounds = []
    for _ in range(10):
        before = woken()
        for _ in range(int(sys.argv[2])):
            client.put(Message("t", b"first"))
        rounds.append(woken() - before)
    print(min(rounds))
"""


async def _woken(served: Served, environment: dict[str, str]) -> tuple[int, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", WOKEN, served.target, str(PUTS)],
        cwd=ROOT,
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return int(done.stdout), done.stderr


def test_the_pinned_release_was_measured() -> None:
    pins = (ROOT / "constraints.txt").read_text()
    pinned = re.search(r"^grpcio==(\d+\.\d+)\.", pins, re.MULTILINE)
    assert pinned is not None
    assert pinned[1] in MEASURED


@pytest.mark.skipif(not IS_MEASURED, reason="gRPC is left as it comes")
async def test_messages_do_not_go_through_threads_of_the_newer_way(served: Served) -> None:
    woken, printed = await _woken(served, {})
    assert woken < PUTS / 2
    assert printed == ""  # gRPC would say so of a switch that it does not know


async def test_what_a_user_has_set_stays(served: Served) -> None:
    woken, _ = await _woken(served, {"GRPC_EXPERIMENTS": "event_engine_client"})
    assert woken > PUTS
