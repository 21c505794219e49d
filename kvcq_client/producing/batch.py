"""Messages that travel together, and the futures of each of them."""

from __future__ import annotations

import asyncio
import logging
import threading
from time import monotonic
from typing import TYPE_CHECKING

from kvcq_client.errors import DeadlineError, KvcqError
from kvcq_client.format import placed_all

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from kvcq_client.format import Outgoing
    from kvcq_client.pb.v1 import kvcq_pb2 as pb
    from kvcq_client.values import Placed

logger = logging.getLogger(__name__)


class Unasked:
    """Messages of one producer that failed, and whose outcome nobody has asked for.

    Thread: any. Locks: `_lock` alone, for microseconds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._count = 0
        self._first: KvcqError | None = None

    def failed(self, count: int, error: KvcqError) -> None:
        with self._lock:
            self._count += count
            self._first = self._first or error

    def asked(self) -> None:
        """The outcome of one of them was asked for."""
        with self._lock:
            self._count -= 1
            if not self._count:
                self._first = None

    def tell(self) -> None:
        """Log them, if there are any: once."""
        with self._lock:
            count, first = self._count, self._first
            self._count, self._first = 0, None
        if count > 0:
            logger.warning(
                "%d messages of the producer failed, and nobody asked for their outcome; the "
                "first error: %s",
                count,
                first,
            )


class Batch:
    """Messages of one PutBatch, from the first `send` to the answer.

    Filled under the lock of its producer, then owned by the delivery until `finish`; after that
    nothing changes any more. What waits for the end is guarded by `_lock`.
    """

    __slots__ = (
        "_asked",
        "_callbacks",
        "_light_queues",
        "_lock",
        "_placed",
        "_unasked",
        "begun_s",
        "count",
        "done",
        "errors",
        "failure",
        "may_be_stored",
        "messages",
        "response",
        "sequence",
        "size",
    )

    def __init__(self, begun_s: float) -> None:
        # In order; those that were refused alone are taken out. Let go when it is done.
        self.messages: list[Outgoing] = []
        self.count = 0  # messages, those that were refused included
        self.size = 0  # bytes they count for
        self.begun_s = begun_s  # monotonic
        self.sequence: int | None = None  # of the first message, once it was sent
        # It was sent, and the stream ended before there was an answer that says otherwise.
        self.may_be_stored = False
        self.done = False
        self.response: pb.PutBatchResponse | None = None
        self.failure: KvcqError | None = None  # of all messages that are not in `errors`
        # Messages that were refused alone; the others went on without them.
        self.errors: dict[int, KvcqError] = {}
        self._placed: list[Placed] | None = None  # once somebody asks
        self._light_queues: list[int] = []  # of each message; [] when none has any
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []
        self._unasked: Unasked | None = None

    def finish(
        self,
        response: pb.PutBatchResponse | None,
        failure: KvcqError | None = None,
        unasked: Unasked | None = None,
    ) -> None:
        """The outcome is known. Wakes who waits. `unasked` keeps account of what failed."""
        self.response, self.failure = response, failure
        if unasked is not None and (failure is not None or self.errors):
            self._unasked = unasked
            self._asked: set[int] = set()  # indices of failed messages
            first = failure or self.errors[min(self.errors)]
            unasked.failed(self.count if failure is not None else len(self.errors), first)
        if response is not None and response.light_queue_offsets:
            # A name that stands twice counts once.
            self._light_queues = [
                len(set(light_queues or ())) for _, _, _, _, _, light_queues, *_ in self.messages
            ]
        self.messages = []
        with self._lock:
            self.done = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                # Not the delivery's fault: the batches behind must have their outcomes.
                logger.exception("a callback for a batch that is done raised")

    def after_fork(self, error: KvcqError) -> None:
        """In a child process: its outcome is told to the parent."""
        self._lock = threading.Lock()
        self._callbacks = []
        self.finish(None, error)

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call back once, on the delivering thread, or now if it is done.

        What it raises on the delivering thread is logged.
        """
        with self._lock:
            if not self.done:
                self._callbacks.append(callback)
                return
        callback()

    def error_of(self, index: int) -> KvcqError | None:
        """Why the message was not stored, or None. Only when done."""
        error = self.errors.get(index) or self.failure
        if error is not None and self._unasked is not None:
            with self._lock:
                is_new = index not in self._asked
                self._asked.add(index)
            if is_new:
                self._unasked.asked()
        return error

    def placed(self, index: int) -> Placed:
        """Where the message stands. Only when done. Raises its error."""
        error = self.error_of(index)
        if error is not None:
            raise error
        response = self.response
        assert response is not None, "a batch is done with a response or a failure"
        if self._placed is None:
            light_queues = self._light_queues or [0] * len(response.queue_ids)
            self._placed = placed_all(response, light_queues)
        at = index - sum(refused < index for refused in self.errors) if self.errors else index
        return self._placed[at]

    def wait(self, timeout_s: float | None) -> None:
        """Block until done. Raises DeadlineError. Not on the delivering thread."""
        if self.done:
            return
        done = threading.Event()
        self.when_done(done.set)
        if not done.wait(timeout_s):
            raise DeadlineError("no answer in time; the producer still delivers it")

    async def waited(self) -> None:
        """Returns when done; in any event loop."""
        if self.done:
            return
        loop = asyncio.get_running_loop()
        future = loop.create_future()

        def resolve() -> None:
            if not future.done():
                future.set_result(None)

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(resolve)

        self.when_done(wake)
        await future


#: A batch, the index of the first message in it, and the index behind the last.
Run = tuple[Batch, int, int]


class Sending:
    """The future of one message: `result()` waits, `await` waits in an event loop."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    def done(self) -> bool:
        """Whether the message was acknowledged or has failed."""
        return self._batch.done

    def result(self, timeout_s: float | None = None) -> Placed:
        """Where the message stands. Raises its error, DeadlineError when the time is up.

        The time is for this waiting alone: the producer goes on delivering until its own delivery
        timeout, and `result` may be asked again. None: until there is an outcome.
        """
        self._batch.wait(timeout_s)
        return self._batch.placed(self._index)

    def error(self, timeout_s: float | None = None) -> KvcqError | None:
        """Its error, or None when it was acknowledged. Raises DeadlineError."""
        self._batch.wait(timeout_s)
        return self._batch.error_of(self._index)

    def __await__(self) -> Generator[object, None, Placed]:
        return self._wait().__await__()

    async def _wait(self) -> Placed:
        await self._batch.waited()
        return self._batch.placed(self._index)


class SendingMany:
    """The futures of a list of messages, in its order, as one."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[Run]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(end - begin for _, begin, end in self._parts)

    def done(self) -> bool:
        """Whether all were acknowledged or have failed."""
        return all(batch.done for batch, _, _ in self._parts)

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call back once, when all are done, on the delivering thread; or now. Must be short."""
        left = len(self._parts)
        lock = threading.Lock()

        def one_done() -> None:
            nonlocal left
            with lock:
                left -= 1
                last = left == 0
            if last:
                callback()

        if not left:
            callback()
        for batch, _, _ in self._parts:
            batch.when_done(one_done)

    def result(self, timeout_s: float | None = None) -> list[Placed]:
        """Where each stands. Raises the first error; DeadlineError as Sending does."""
        self._wait_all(timeout_s)
        return self._placed()

    def errors(self, timeout_s: float | None = None) -> dict[int, KvcqError]:
        """Index in the list to error, of those that failed. Raises DeadlineError."""
        self._wait_all(timeout_s)
        found: dict[int, KvcqError] = {}
        first = 0
        for batch, begin, end in self._parts:
            if batch.failure is not None or batch.errors:
                for index in range(begin, end):
                    error = batch.error_of(index)
                    if error is not None:
                        found[first + index - begin] = error
            first += end - begin
        return found

    def __await__(self) -> Generator[object, None, list[Placed]]:
        return self._wait().__await__()

    async def _wait(self) -> list[Placed]:
        for batch, _, _ in self._parts:
            await batch.waited()
        return self._placed()

    def _wait_all(self, timeout_s: float | None) -> None:
        end_s = None if timeout_s is None else monotonic() + timeout_s
        for batch, _, _ in self._parts:
            batch.wait(None if end_s is None else max(0.0, end_s - monotonic()))

    def _placed(self) -> list[Placed]:
        """When all are done. Raises the first error."""
        for error in self.errors().values():
            raise error
        return [
            batch.placed(index) for batch, begin, end in self._parts for index in range(begin, end)
        ]
