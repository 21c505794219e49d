"""A port for a server that is started more than once on it, or started by somebody else."""

from __future__ import annotations

import socket
from contextlib import suppress
from random import SystemRandom

#: Below the ports that Linux gives to those who ask for any: tests that run beside get none of
#: these, neither now nor while the server is down.
_FIRST, _END = 10_000, 32_000
# Property tests make the shared one repeat itself, in each of the processes that run tests.
_random = SystemRandom()


def free_port() -> int:
    while True:
        port = _random.randrange(_FIRST, _END)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
