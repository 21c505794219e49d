"""How much memory another process took at most, without what is mapped from files."""

from __future__ import annotations

import threading
from pathlib import Path


class PrivateMemory:
    """Looks every 10 ms until `close`, which must come before the process ends."""

    def __init__(self, pid: int) -> None:
        self._status = Path(f"/proc/{pid}/status")
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
            text = self._status.read_text()
            self.most_mib = max(self.most_mib, int(text.partition("RssAnon:")[2].split()[0]) >> 10)
