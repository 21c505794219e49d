"""The server's side of reader processes: starts them, sends orders, and works without them."""

from __future__ import annotations

import logging
import socket
import subprocess
import threading
from contextlib import suppress
from queue import LifoQueue
from time import monotonic
from typing import TYPE_CHECKING

from server.readers.orders import (
    LinkEndedError,
    LogPlace,
    Order,
    is_ready,
    receive_answer,
    send_order,
    set_patience,
)
from store.base import start_module

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcq_client.pb.v1 import kvcq_pb2 as pb
    from server.wire import Encoded
    from store.reads import PullPlan

logger = logging.getLogger(__name__)

#: In a wheel it has a longer name: see build_backend.py.
PROCESS = f"{__package__}.process"
#: Fewer bytes of records are read where they are asked for: the way there and back takes as long.
LEAST_BYTES = 64 << 10
#: A process without a request for this long ends.
IDLE_S = 60.0
#: Cold reads that follow each other this soon come from a consumer far behind; they are not a
#: single lookup.
_FOLLOWS_S = 1.0
#: A process that died is not restarted sooner.
_PAUSE_S = 5.0
#: A reader that does not answer for this long is killed: a hanging disk blocks the server's own
#: reads too.
_PATIENCE_S = 30.0
#: A process that ended, or is killed, is gone after this long.
_ENDS_S = 1.0
#: Buffer of one end of a pair of sockets, if the system allows it: a response needs few pieces.
_SOCKET_BYTES = 1 << 20


class Readers:
    """At most this many reader processes, each started on demand.

    Thread: `read` on any; each process serves one at a time.
    """

    def __init__(
        self,
        count: int,
        log: LogPlace,
        *,
        idle_s: float = IDLE_S,
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        #: The log to read.
        self.log = log
        self._all = [_Reader(idle_s, now_s) for _ in range(count)]
        # The one used last is the next: others are not needed, and end.
        self._free: LifoQueue[_Reader] = LifoQueue()
        for reader in self._all:
            self._free.put(reader)

    @property
    def running(self) -> int:
        """Number of running processes."""
        return sum(reader.is_running for reader in self._all)

    @property
    def answered(self) -> int:
        """Number of reads that they completed."""
        return sum(reader.answered for reader in self._all)

    def read(self, plan: PullPlan, form: pb.RecordForm, *, in_stream: bool) -> Encoded | None:
        """The response with everything planned; None if the caller has to read it itself. Blocks.

        None while a process starts, for few bytes, and for records that a reader cannot verify. If
        all are busy, waits for one of them.
        """
        if not self._all or plan.size_bytes < LEAST_BYTES:
            return None
        reader = self._free.get()
        try:
            return reader.ask(Order(self.log, plan, form, in_stream))
        finally:
            self._free.put(reader)

    def close(self) -> None:
        """End all processes. No read may be running or follow."""
        for reader in self._all:
            reader.end()


class _Reader:
    """One process, while it is needed. Thread: one at a time."""

    def __init__(self, idle_s: float, now_s: Callable[[], float]) -> None:
        self._idle_s = idle_s
        self._now_s = now_s
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None  # to the process
        self._is_ready = False
        self.answered = 0
        self._asked_s = -_FOLLOWS_S
        self._not_before_s = 0.0

    @property
    def is_running(self) -> bool:
        process = self._process
        return process is not None and process.poll() is None

    def ask(self, order: Order) -> Encoded | None:
        """The response; None without one."""
        try:
            link = self._link or self._started()
            if link is None:
                return None
            if not self._is_ready:
                self._is_ready = is_ready(link)
                if not self._is_ready:
                    return None
            send_order(link, order)
            answer = receive_answer(link)
            self.answered += answer is not None
            return answer
        except (LinkEndedError, OSError) as error:
            self._lost(error)
            return None
        except BaseException:
            self.end()  # its answer may still be on the way: the next order would get it
            raise

    def end(self) -> None:
        """End the process. Repeatable."""
        link, self._link = self._link, None
        process, self._process = self._process, None
        if link is not None:
            link.close()
        if process is not None:
            process.kill()
            with suppress(subprocess.TimeoutExpired):  # it hangs in the disk
                process.wait(_ENDS_S)

    def _started(self) -> socket.socket | None:
        """Start a process if that pays. It takes half a second until it is ready."""
        now_s, asked_s = self._now_s(), self._asked_s
        self._asked_s = now_s
        if now_s - asked_s >= _FOLLOWS_S or now_s < self._not_before_s:
            return None
        self._not_before_s = now_s + _PAUSE_S
        ours, theirs = socket.socketpair()
        with theirs:
            for end in (ours, theirs):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
            set_patience(ours, _PATIENCE_S)
            self._link = ours
            self._is_ready = False
            self._process = process = start_module(
                PROCESS,
                str(self._idle_s),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                low_priority=True,
            )
        # It ends on its own when it is not needed, so a thread must wait for its exit.
        threading.Thread(target=process.wait, name="reader-end", daemon=True).start()
        return ours

    def _lost(self, error: Exception) -> None:
        process = self._process
        code = None
        if process is not None:
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(_ENDS_S)
        self.end()
        if code != 0:  # otherwise it ended on its own, because it was not needed
            why = f"ended with {code}" if code is not None else f"does not respond: {error}"
            logger.warning("a reader process %s; the server reads instead", why)
