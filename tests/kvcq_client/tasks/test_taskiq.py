"""taskiq on a shared group: the real library, workers in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.support.server_process import ROOT, ServerProcess
from tests.support.until import wait_until

pytest.importorskip("taskiq", reason="the extra kvcq-client[taskiq] is not installed")

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_TASKS = """
import asyncio
import os
from pathlib import Path

from taskiq import Context, SmartRetryMiddleware, TaskiqDepends

from kvcq_client.tasks.taskiq import KvcqBroker

broker = KvcqBroker("TARGET", topic="tasks", group="workers", invisible_s=2.0).with_middlewares(
    SmartRetryMiddleware(default_retry_count=5, default_delay=0.2)
)


def note(text):
    with Path("OUT").open("a") as file:
        file.write(text + "\\n")


@broker.task
async def add(number):
    note(f"add {number}")


@broker.task
async def long(number):
    note(f"begun {number} {os.getpid()}")
    await asyncio.sleep(6)
    note(f"ended {number} {os.getpid()}")


@broker.task(retry_on_error=True)
async def flaky(context: Context = TaskiqDepends()):
    retries = int(context.message.labels.get("_retries", 0))
    note(f"flaky {retries}")
    if retries < 2:
        raise ValueError("not yet")
"""

_KICK = """
import asyncio
import site_tasks

async def main():
    await site_tasks.broker.startup()
    CODE
    await site_tasks.broker.shutdown()

asyncio.run(main())
"""


class Site:
    """A server, a module of tasks, and what they have noted."""

    def __init__(self, directory: Path, target: str) -> None:
        self.directory = directory
        self.out = directory / "out"
        self.out.touch()
        text = _TASKS.replace("TARGET", target).replace("OUT", str(self.out))
        (directory / "site_tasks.py").write_text(text)
        self.environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{directory}"}

    @contextmanager
    def worker(self) -> Iterator[subprocess.Popen[bytes]]:
        """With its children a process group, which is killed at the end."""
        command = [sys.executable, "-m", "taskiq", "worker", "site_tasks:broker", "--workers", "1"]
        with subprocess.Popen(
            command, cwd=self.directory, env=self.environment, start_new_session=True
        ) as process:
            try:
                yield process
            finally:
                kill(process)

    def kick(self, code: str) -> None:
        command = [sys.executable, "-c", _KICK.replace("CODE", code)]
        subprocess.run(command, cwd=self.directory, env=self.environment, check=True)

    def noted(self) -> list[str]:
        return self.out.read_text().splitlines()


def kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ServerProcess(tmp_path / "store") as server:
        server.wait_for("ready")
        yield Site(tmp_path, server.target)


def test_workers_share_the_tasks_and_retry_what_raises(site: Site) -> None:
    site.kick("for number in range(100): await site_tasks.add.kiq(number)")
    site.kick("await site_tasks.flaky.kiq()")
    with site.worker(), site.worker():
        wait_until(lambda: len(site.noted()) >= 103)
        noted = site.noted()
    assert sorted(noted) == sorted(
        [*(f"add {number}" for number in range(100)), *(f"flaky {each}" for each in range(3))]
    )


def test_a_delayed_task_begins_when_its_time_has_come(site: Site) -> None:
    with site.worker():
        site.kick(
            "await site_tasks.add.kicker().with_labels(delay=3).kiq(1); await site_tasks.add.kiq(2)"
        )
        wait_until(lambda: len(site.noted()) == 2)
    assert site.noted() == ["add 2", "add 1"]


def test_the_task_of_a_killed_worker_is_done_by_another_and_a_long_one_is_renewed(
    site: Site,
) -> None:
    site.kick("await site_tasks.long.kiq(1)")
    with site.worker() as first:
        wait_until(site.noted)
        kill(first)
    with site.worker(), site.worker():
        wait_until(lambda: any(line.startswith("ended") for line in site.noted()))
        noted = site.noted()
    begun = [line.split()[2] for line in noted if line.startswith("begun")]
    assert len(begun) == 2, "three times as long as it is invisible, and yet not delivered again"
    assert noted[-1] == f"ended 1 {begun[1]}"
