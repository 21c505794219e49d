"""What is freed stays in the process: seen in processes of their own, by the pages they fetch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

#: Pages fetched for responses of 600 KB that come one after another, beside a block that stays.
FETCHED = """
import resource
from kvcq_client.transport import keep_freed_memory

keep_freed_memory()
keep_freed_memory()

def respond():
    parts = [bytes(60_000) for _ in range(10)]
    whole = bytearray().join(parts)
    kept = bytes(100_000)
    return [bytes(whole), kept]

for _ in range(3):
    respond()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    respond()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 100)
"""


def fetched(**settings: str) -> int:
    """Pages for each response."""
    ours = ("MALLOC_", "GLIBC_TUNABLES")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(
        [sys.executable, "-c", FETCHED],
        cwd=ROOT,
        env=kept | settings,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return int(done.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of glibc")
def test_responses_find_the_memory_of_those_before_them() -> None:
    assert fetched() <= 1


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of glibc")
@pytest.mark.parametrize(
    "settings",
    [
        {"MALLOC_TRIM_THRESHOLD_": "131072"},
        {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=131072"},
    ],
    ids=["of the allocator", "tunables"],
)
def test_settings_of_the_user_are_left_alone(settings: dict[str, str]) -> None:
    assert fetched(**settings) > 50
