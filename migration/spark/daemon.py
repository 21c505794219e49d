"""Spark's daemon for Python workers, adapted to many short tasks.

A worker collects garbage after every task, which visits all imported modules: with pyspark, pandas
and pyarrow about 0.1 s, more than most tasks take. Here everything that exists after the first task
is hidden from the collector.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from pyspark import daemon

if TYPE_CHECKING:
    from socket import socket

_run = daemon.worker


def _run_and_freeze(sock: socket, authenticated: bool) -> int:  # noqa: FBT001 - as pyspark has it
    code: int = _run(sock, authenticated)
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
    return code


if __name__ == "__main__":
    daemon.worker = _run_and_freeze
    daemon.manager()
