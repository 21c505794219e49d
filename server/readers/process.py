"""A reader process: `python -m server.readers.process IDLE_S`.

Orders arrive on its standard input, which is a socket, and responses go back the same way. It ends
with the server, and after `IDLE_S` without orders.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

from kvcq_client.transport import keep_freed_memory
from server.readers.answers import answer
from server.readers.orders import (
    READY,
    LinkEndedError,
    receive_order,
    send_answer,
    set_patience,
)
from store.log import LogFiles


def main(idle_s: str) -> None:
    # Ignored, because a signal to the process group also stops the server, which drains first and
    # then ends its readers.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    keep_freed_memory()
    with socket.socket(fileno=os.dup(0)) as link, suppress(LinkEndedError, OSError):
        set_patience(link, float(idle_s))
        link.sendall(READY)
        while True:
            order = receive_order(link)
            files = LogFiles(Path(order.log.directory), order.log.segment_bytes)
            send_answer(link, answer(files, order))


if __name__ == "__main__":
    main(*sys.argv[1:])
