"""The page of a migration: its sample store is made by what it has a reader type."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import ROOT, blocks, read

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_the_sample_is_a_store_of_rocketmqs(tmp_path: Path) -> None:
    (tmp_path / "kvcq").write_text(f'#!/bin/sh\nexec {sys.executable} -m server "$@"\n')
    (tmp_path / "kvcq").chmod(0o755)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    [block] = [each for each in blocks(read("migration/docs/migration.md"), "sh") if "seq" in each]
    done = subprocess.run(
        # Whatever fails, the server does not outlive it.
        [
            *("bash", "-ec"),
            f'trap "kill %1" ERR; PATH="$PWD:$PATH"\n{block.replace("8091", str(port))}',
        ],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    plan = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if "  " in line)
    assert plan["store"] == "RocketMQ's"
    assert plan["messages"] == "1,001"  # the record that made the topic stays in the log
    assert not (tmp_path / "sample" / "kvcq").exists()
