"""A server in which listing topics never ends: a thread that hangs on a disk, or on a lock."""

from __future__ import annotations

import threading
from typing import NoReturn

from server import workers
from server.cli.main import main
from server.process import last_resort
from store.message_store import MessageStore


def _hang(*_: object) -> NoReturn:
    while True:
        threading.Event().wait()


if __name__ == "__main__":
    MessageStore.list_topics = _hang  # type: ignore[method-assign,assignment]
    workers.CLOSE_S = 0.1
    last_resort.PATIENCE_S = 1.0
    main(prog_name="kvcq")
