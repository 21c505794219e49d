"""One server for all tests of this directory; and what a busy machine does to them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from _pytest.runner import runtestprotocol

from tests.support.child_process import child_process

if TYPE_CHECKING:
    from collections.abc import Iterator


class RunningService(NamedTuple):
    """A real server, in a process of its own."""

    target: str


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """One server for all tests that need one; each takes topics of its own."""
    directory = str(tmp_path_factory.mktemp("service"))
    with child_process(
        [sys.executable, "-m", "tests.migration.spark.serve_process", directory],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
        longest_s=3600,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield RunningService(process.stdout.readline().strip())
        process.stdin.close()
        assert process.wait(30) == 0


#: Spark gives the process that plans a stream 10 s to start, whatever else the machine does; the
#: number stands in its code. A cold disk, or a load of thirty, and it is late.
_LATE_WORKER = "Python worker failed to connect back"


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """A test whose worker was late is run once more, whole; for no other reason."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    if any(report.failed and _LATE_WORKER in report.longreprtext for report in reports):
        sys.stderr.write(f"{item.nodeid}: once more, for {_LATE_WORKER!r}\n")
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
