"""What the command line imports before it knows the command."""

from __future__ import annotations

import subprocess
import sys


def test_help_brings_neither_grpc_nor_a_store() -> None:
    heavy = ("grpc", "kvcq_client", "rocksdict", "numpy", "apscheduler", "store")
    code = f"import sys, server.cli.main; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
