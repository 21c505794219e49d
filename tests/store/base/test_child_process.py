"""store/base/child_process.py: what is to take what others leave does so from its start."""

from __future__ import annotations

import os
import subprocess

import pytest

import kvcq.backup.process
from store.base import start_module


@pytest.mark.parametrize("low_priority", [True, False])
def test_its_priority_is_low_before_it_imports_anything(*, low_priority: bool) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    with start_module(
        kvcq.backup.process.__name__,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        low_priority=low_priority,
    ) as process:
        try:
            found = os.getpriority(os.PRIO_PROCESS, process.pid)
            assert found == (max(own, 10) if low_priority else own)
        finally:
            process.kill()
