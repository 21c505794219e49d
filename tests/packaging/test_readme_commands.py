"""README.md: `make run` and `make test` do what the page says, in its order, in a clean copy."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import blocks, read
from tests.packaging.environment import ROOT
from tests.support.child_process import child_process
from tests.support.free_port import free_port

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.packages, pytest.mark.timeout(900)]

#: Those that go by settings, files and the environment: where a store in ./data could be found.
TESTS = "tests/server/cli tests/server/settings tests/docs tests/integration/test_main_command.py"


def test_the_tests_pass_beside_the_store_that_make_run_made(tmp_path: Path) -> None:
    page = read("README.md").partition("## Run it")[2]
    run, test = (line.partition("#")[0].split() for line in blocks(page, "")[0].splitlines())
    assert (run, test) == (["make", "run"], ["make", "test"])
    copy = tmp_path / "kvcq"
    _copy_tracked_files(copy)
    environment = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}

    port = f"PORT={free_port()}"  # the page's own may be taken here
    with child_process(
        [*run, port],
        cwd=copy,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        longest_s=900,
    ) as server:
        assert server.stderr is not None
        for line in server.stderr:
            if line.startswith("ready."):
                break
        [put] = [line.strip() for line in (next(server.stderr),) if " put " in line]
        done = subprocess.run(["sh", "-c", put], cwd=copy, env=environment, check=False)
        os.killpg(server.pid, signal.SIGINT)  # as a terminal does
        server.communicate()
    assert done.returncode == 0, put
    assert list((copy / "data").iterdir()), "the store is where `kvcq config` looks for one"

    environment |= {"PYTEST_ADDOPTS": TESTS, "KVCQ_SERVER": "127.0.0.1:1"}
    subprocess.run([*test, "TEST_WORKERS=2"], cwd=copy, env=environment, check=True)


def _copy_tracked_files(to: Path) -> None:
    """As a clone has them, with what is changed here and not committed yet."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
