"""How much memory other processes took at most, without what is mapped from files."""

from __future__ import annotations

import threading
from pathlib import Path


def private_mib(*pids: int) -> int:
    """What they have now, all of them together."""
    texts = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
    return sum(int(text.partition("RssAnon:")[2].split()[0]) for text in texts) >> 10


class PrivateMemory:
    """Of all of them together. Looks every 10 ms until `close`, which must come before they end."""

    def __init__(self, *pids: int) -> None:
        self._pids = pids
        self._stop = threading.Event()
        self.most_mib = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        """No further look."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            self.most_mib = max(self.most_mib, private_mib(*self._pids))
