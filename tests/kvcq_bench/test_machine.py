"""What processes use is read without any package."""

from __future__ import annotations

import os
import subprocess
import sys
from time import process_time

from kvcq_bench.machine import machine, touch_memory, used_by

_HOLDS = "data = bytearray(64 << 20); print('ready', flush=True); input()"


def test_process_and_its_children_are_counted() -> None:
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_HOLDS!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        used = used_by([parent.pid])
        alone = used_by([os.getpid()])
        parent.communicate(b"\n")
    assert used.private_bytes > 64 << 20
    assert used.resident_bytes > used.private_bytes
    assert used.open_files >= 6
    assert alone.resident_bytes > used.resident_bytes  # this process is the parent of both
    assert used_by([parent.pid]).resident_bytes == 0


def test_processor_time_grows_with_work() -> None:
    before, began_s = used_by([os.getpid()]), process_time()
    while process_time() - began_s < 0.05:
        pass
    assert used_by([os.getpid()]).cpu_s - before.cpu_s >= 0.03


def test_machine_is_named_and_its_memory_can_be_touched() -> None:
    found = machine()
    assert found["processor"]
    assert isinstance(found["memory_bytes"], int)
    assert found["memory_bytes"] > 1 << 28
    assert touch_memory(4 << 20) > 0
