"""Celery on shared groups: the real library, workers in processes of their own."""

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

pytest.importorskip("celery", reason="the extra kvcq-client[celery] is not installed")

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_TASKS = """
import os
import time
from pathlib import Path

from celery import Celery

import kvcq_client.tasks.kombu

app = Celery("site_tasks", broker="kvcq://TARGET", backend="file://BACKEND")
app.conf.update(
    broker_transport_options={"invisible_s": 2.0},
    broker_connection_retry_on_startup=True,
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    worker_enable_remote_control=False,
)


def note(text):
    with Path("OUT").open("a") as file:
        file.write(text + "\\n")


@app.task
def add(first, second):
    note(f"add {first} {second}")
    return first + second


@app.task
def total(numbers):
    note(f"total {sum(numbers)}")
    return sum(numbers)


@app.task
def long(number):
    note(f"begun {number} {os.getpid()}")
    time.sleep(6)
    note(f"ended {number} {os.getpid()}")


@app.task(bind=True, max_retries=5)
def flaky(self):
    note(f"flaky {self.request.retries}")
    if self.request.retries < 2:
        raise self.retry(countdown=0.5)
"""


class Site:
    """A server, a module of tasks, and what they have noted."""

    def __init__(self, directory: Path, target: str) -> None:
        self.directory = directory
        self.out = directory / "out"
        self.out.touch()
        (directory / "results").mkdir()
        text = _TASKS.replace("TARGET", target).replace("OUT", str(self.out))
        text = text.replace("BACKEND", str(directory / "results"))
        (directory / "site_tasks.py").write_text(text)
        self.environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{directory}"}

    @contextmanager
    def worker(self, name: str) -> Iterator[subprocess.Popen[bytes]]:
        """Killed at the end."""
        options = "--pool threads --concurrency 2 --without-mingle --without-gossip -l WARNING"
        command = [sys.executable, "-m", "celery", "-A", "site_tasks", "worker", *options.split()]
        with subprocess.Popen(
            [*command, "--without-heartbeat", "-n", name],
            cwd=self.directory,
            env=self.environment,
            start_new_session=True,
        ) as process:
            try:
                yield process
            finally:
                kill(process)

    def call(self, code: str) -> None:
        command = [sys.executable, "-c", f"from site_tasks import *; {code}"]
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


def test_tasks_are_shared_retried_delayed_and_joined_in_a_chord(site: Site) -> None:
    with site.worker("one"), site.worker("two"):
        site.call(
            "[add.delay(number, 0) for number in range(50)]; flaky.delay(); "
            "add.apply_async((100, 100), countdown=4); add.delay(99, 99)"
        )
        expected = [
            *(f"add {number} 0" for number in range(50)),
            *(f"flaky {each}" for each in range(3)),
            *("add 99 99", "add 100 100"),
        ]
        wait_until(lambda: len(site.noted()) >= len(expected))
        noted = site.noted()
        assert sorted(noted) == sorted(expected)
        assert noted.index("add 99 99") < noted.index("add 100 100")
        site.call(
            "from celery import chord; chord([add.s(number, 0) for number in range(10)])(total.s())"
        )
        wait_until(lambda: "total 45" in site.noted())


def test_the_task_of_a_killed_worker_is_done_by_another_and_a_long_one_is_renewed(
    site: Site,
) -> None:
    site.call("long.delay(1)")
    with site.worker("one") as first:
        wait_until(site.noted)
        kill(first)
    with site.worker("two"), site.worker("three"):
        wait_until(lambda: any(line.startswith("ended") for line in site.noted()))
        noted = site.noted()
    begun = [line.split()[2] for line in noted if line.startswith("begun")]
    assert len(begun) == 2, "three times as long as it is invisible, and yet not delivered again"
    assert noted[-1] == f"ended 1 {begun[1]}"
