"""Our own service over gRPC, with the Python client; also that of another checkout."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from kvcq_client import TLS, AsyncClient, Client, Credentials, Message, keep_freed_memory
from server.version import VERSION
from tests.benchmarks.processes import OneProcess
from tests.benchmarks.system import OURS, System
from tests.benchmarks.timing import AT_ONCE, BATCH, BODY_BYTES, Timed, new_loop

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Sequence

T = TypeVar("T")

CLIENT = "tests.benchmarks.systems.ours:KvcqClient"
_ROOT = Path(__file__).parents[3]


class KvcqServer(OneProcess):
    """`python -m server serve` on a free port."""

    def __init__(
        self,
        directory: Path,
        *,
        durable: bool,
        flags: Sequence[str] = (),
        program: Sequence[str] = (sys.executable, "-m", "server"),
    ) -> None:
        super().__init__()
        self.directory = directory
        mode = "sync" if durable else "async"
        self.settings = " ".join([f"store.flush_mode={mode}", *flags])
        self._command = [
            *program,
            *("serve", "--json", "--port", str(self._port), "--data", str(directory / "store")),
            *("--set", f"store.flush_mode={mode}", "--set", "store.reserved_hours=720"),
            *flags,
        ]

    def start(self) -> None:
        log = self.directory / "server.log"
        begin = log.stat().st_size if log.exists() else 0
        self._begin(self._command, log, lambda: b'"ready"' in log.read_bytes()[begin:])


class KvcqClient:
    """A blocking client that stays, and clients in a loop for as long as they are needed.

    `address`: host and port; behind a space the CA, the user and its secret.
    """

    def __init__(self, address: str, *, durable: bool) -> None:
        keep_freed_memory()
        self.address, *more = address.split()
        self._options: dict[str, Any] = {"timeout_s": 120.0}
        if more:
            ca, user, secret = more
            self._options |= {"tls": TLS(ca=Path(ca)), "credentials": Credentials(user, secret)}
        self._blocking: Client | None = None
        self.body = os.urandom(BODY_BYTES)

    @property
    def blocking(self) -> Client:
        if self._blocking is None:
            self._blocking = Client(self.address, **self._options)
        return self._blocking

    def asyncio(self) -> AsyncClient:
        return AsyncClient(self.address, **self._options)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """In a loop of its own, without the blocking client beside it."""
        self.close()
        loop = new_loop()
        try:
            return loop.run_until_complete(work)
        finally:
            loop.close()

    def send(self, lists: Iterable[list[Message]], limit_s: float) -> Timed:
        """What a producer sends in batches, until the time is over."""
        count, began_s = 0, perf_counter()
        with self.blocking.producer(batch_messages=BATCH, window=AT_ONCE) as producer:
            for messages in lists:
                producer.send_many(messages)
                count += len(messages)
                if perf_counter() - began_s > limit_s:
                    break
        return Timed(count, perf_counter() - began_s)

    def close(self) -> None:
        if self._blocking is not None:
            self._blocking.close()
            self._blocking = None


SYSTEM = System(OURS, "kvcq", KvcqServer, CLIENT, version=lambda: VERSION)


def of_checkout(directory: Path) -> System:
    """Server and client of another checkout, by its own Python: before and after, in turns. The
    loops are those of this checkout, so the other one's client must have the calls they use."""
    python = str(directory / ".venv" / "bin" / "python")
    overlay = Path(tempfile.mkdtemp(prefix="kvcq-benchmark-beside"))
    atexit.register(shutil.rmtree, overlay)
    for name in ("tests", "kvcq_bench"):
        (overlay / name).symlink_to(_ROOT / name)
    beside = ["env", f"PYTHONPATH={overlay}:{directory}", python, "-P", "-m"]
    return System(
        "kvcq-beside",
        f"kvcq of {directory.name}",
        partial(KvcqServer, program=[*beside, "server"]),
        CLIENT,
        command=lambda address: [*beside, "tests.benchmarks.client", CLIENT, OURS, address, "0"],
        loops=OURS,
    )
