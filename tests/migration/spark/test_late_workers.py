"""A test is run once more when Spark's worker was late, and for nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

TESTS = """
import pathlib

def fail_first(name, words):
    attempts = pathlib.Path(name)
    attempts.write_text(attempts.read_text() + "x" if attempts.exists() else "x")
    assert len(attempts.read_text()) > 1, words

def test_late():
    fail_first("late", "StreamingQueryException: Python worker failed to connect back.")

def test_wrong():
    fail_first("wrong", "AssertionError")
"""


def test_only_a_late_worker_is_a_reason_to_run_a_test_again(tmp_path: Path) -> None:
    hook = "from tests.migration.spark.conftest import pytest_runtest_protocol\n"
    (tmp_path / "conftest.py").write_text(hook)
    (tmp_path / "test_two.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_two.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "test_late: once more" in done.stderr
    assert (tmp_path / "late").read_text() == "xx"
    assert (tmp_path / "wrong").read_text() == "x"
