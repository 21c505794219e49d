"""Starts servers by fork, from a process that has imported all they need: 20 ms instead of 700.

Runs as `python -m tests.campaign.launcher FD`, where FD is a Unix socket. A request is a JSON list:
the file that moves the server's clock, constants of the program by their whole names with other
values, and the server's command line; with it come two descriptors, standard output and standard
error of the server. The answers are its process id, and when it has ended, its exit
status as `os.waitpid` has it.

In two of three servers threads change places far more often than in others, as they would on a
machine that is slower or has more to do.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from importlib import import_module
from pathlib import Path

from tests.support.constants import set_constants
from tests.support.skewed_clock import install

_REQUEST_BYTES = 1 << 16
#: How long a thread keeps the interpreter that another one wants, in seconds. 5 ms is the default.
_SWITCHES_S = (5e-3, 1e-4, 1e-6)


def serve_requests(control: socket.socket) -> None:
    """One server at a time, until the other end of the socket is closed."""
    main = import_module("server.cli.main").main
    import_module("server.cli.serve")
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, _REQUEST_BYTES, 2)
        if not data:
            return
        pid = os.fork()
        if pid == 0:
            control.close()
            for number, descriptor in enumerate(descriptors, start=1):
                os.dup2(descriptor, number)
                os.close(descriptor)
            # Of a file before, of a pipe now: the one at hand would seek.
            sys.stdout = os.fdopen(1, "w", buffering=1, encoding="utf-8", closefd=False)
            sys.setswitchinterval(_SWITCHES_S[os.getpid() % len(_SWITCHES_S)])
            skew, constants, *arguments = json.loads(data)
            install(Path(skew))
            set_constants({name: json.loads(value) for name, value in constants.items()})
            main(arguments, prog_name="kvcq")
            os._exit(0)  # click has ended the process before
        for descriptor in descriptors:
            os.close(descriptor)
        control.sendall(pid.to_bytes(8, "big"))
        _, status = os.waitpid(pid, 0)
        control.sendall(status.to_bytes(8, "big"))


if __name__ == "__main__":
    serve_requests(socket.socket(fileno=int(sys.argv[1])))
