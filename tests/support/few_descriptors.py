"""`python -m tests.support.few_descriptors serve …`: the server, with 1,024 descriptors at most."""

from __future__ import annotations

import resource
import runpy

MOST = 1024

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (MOST, MOST))
    runpy.run_module("server", run_name="__main__", alter_sys=True)
