"""Messages that are sent as one batch, and their futures."""

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


class Failures:
    """Counts the failed messages of a producer: since the last `flush`, and those whose result the
    caller has not checked.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._uncounted = 0
        self._unasked = 0
        self._first: KvcqError | None = None  # the first error of `_unasked`

    def failed(self, count: int, error: KvcqError) -> None:
        with self._lock:
            self._uncounted += count
            self._unasked += count
            self._first = self._first or error

    def asked(self) -> None:
        """The caller has checked the result of a failed message."""
        with self._lock:
            self._unasked -= 1
            if not self._unasked:
                self._first = None

    def count(self) -> int:
        """Failures since the last call."""
        with self._lock:
            count, self._uncounted = self._uncounted, 0
        return count

    def log_unasked(self) -> None:
        """Log a warning for failures that were not checked, once."""
        with self._lock:
            count, first = self._unasked, self._first
            self._unasked, self._first = 0, None
        if count > 0:
            messages = "1 message was" if count == 1 else f"{count} messages were"
            logger.warning(
                "%s not delivered, and the result was never checked. First error: %s",
                messages,
                first,
            )


class Batch:
    """Messages of one PutBatch, from the first `send` to the response.

    Filled under the producer's lock, then owned by the delivery until `finish`, and immutable after
    that. `_lock` guards callbacks.
    """

    __slots__ = (
        "_asked",
        "_callbacks",
        "_failures",
        "_light_queues",
        "_lock",
        "_placed",
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
        # In order; individually rejected messages are removed. Released when done.
        self.messages: list[Outgoing] = []
        self.count = 0  # messages, including rejected ones
        self.size = 0  # bytes
        self.begun_s = begun_s  # monotonic
        self.sequence: int | None = None  # of the first message; None until it is sent
        # It was sent, and no response has shown that it was not stored.
        self.may_be_stored = False
        self.done = False
        self.response: pb.PutBatchResponse | None = None
        self.failure: KvcqError | None = None  # of all messages without an entry in `errors`
        # Errors of individually rejected messages, by index.
        self.errors: dict[int, KvcqError] = {}
        self._placed: list[Placed] | None = None  # decoded on demand
        self._light_queues: list[int] = []  # number for each message; [] if none has any
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []
        self._failures: Failures | None = None

    def finish(
        self,
        response: pb.PutBatchResponse | None,
        failure: KvcqError | None = None,
        failures: Failures | None = None,
    ) -> None:
        """Set the result, and call callbacks. Failed messages are counted in `failures`."""
        self.response, self.failure = response, failure
        if failures is not None and (failure is not None or self.errors):
            self._failures = failures
            self._asked: set[int] = set()  # indices of failed messages
            first = failure or self.errors[min(self.errors)]
            failures.failed(self.count if failure is not None else len(self.errors), first)
        if response is not None and response.light_queue_offsets:
            # A repeated name counts once.
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
                # An error of the caller must not keep later batches from their results.
                logger.exception("a callback for a batch that is done raised")

    def after_fork(self, error: KvcqError) -> None:
        """In a forked child: fail, since the parent gets the result."""
        self._lock = threading.Lock()
        self._callbacks = []
        self.finish(None, error)

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call back once: on the delivering thread, or now if the batch is done.

        Errors that the callback raises on the delivering thread are logged.
        """
        with self._lock:
            if not self.done:
                self._callbacks.append(callback)
                return
        callback()

    def error_of(self, index: int) -> KvcqError | None:
        """Why the message was not stored, or None. Only when done."""
        error = self.errors.get(index) or self.failure
        if error is not None and self._failures is not None:
            with self._lock:
                is_new = index not in self._asked
                self._asked.add(index)
            if is_new:
                self._failures.asked()
        return error

    def placed(self, index: int) -> Placed:
        """The place of the message. Only when done. Raises its error."""
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
            raise DeadlineError("no response in time; the producer still delivers it")

    async def waited(self) -> None:
        """Wait until done, in any event loop."""
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


#: A batch, the index of the first message in it, and the index after the last one.
Part = tuple[Batch, int, int]


class Sending:
    """The future of one message, with the methods of `concurrent.futures.Future`; `await` waits in
    an event loop.

    It cannot be cancelled: a buffered message is delivered or fails.
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    def done(self) -> bool:
        """Whether the message was acknowledged or has failed."""
        return self._batch.done

    def running(self) -> bool:
        """Whether there is no result yet."""
        return not self._batch.done

    def cancel(self) -> bool:
        """Do nothing and return False: a buffered message cannot be cancelled."""
        return False

    def cancelled(self) -> bool:
        """Always False, see `cancel`."""
        return False

    def result(self, timeout: float | None = None) -> Placed:
        """Return where the message is stored. Blocks until it is known, or for `timeout` seconds.

        Raises the message's error, and DeadlineError (a TimeoutError) after `timeout`; the producer
        then continues to deliver the message until its own delivery timeout. Must not be called in
        an event loop before `done()`, nor in a callback of another message.
        """
        self._batch.wait(timeout)
        return self._batch.placed(self._index)

    def exception(self, timeout: float | None = None) -> KvcqError | None:
        """Return the message's error, or None if it was acknowledged. Blocks as `result` does."""
        self._batch.wait(timeout)
        return self._batch.error_of(self._index)

    def add_done_callback(self, callback: Callable[[Sending], object]) -> None:
        """Call `callback(self)` when there is a result: on the delivering thread, or now if there
        is one already. It must return quickly. Errors that it raises on that thread are logged."""

        def call() -> None:
            callback(self)

        self._batch.when_done(call)

    def __await__(self) -> Generator[object, None, Placed]:
        return self._wait().__await__()

    async def _wait(self) -> Placed:
        await self._batch.waited()
        return self._batch.placed(self._index)


class SendingMany:
    """One future for a list of messages."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(end - begin for _, begin, end in self._parts)

    def done(self) -> bool:
        """Whether all were acknowledged or have failed."""
        return all(batch.done for batch, _, _ in self._parts)

    def add_done_callback(self, callback: Callable[[SendingMany], object]) -> None:
        """Call `callback(self)` once when all are done, as Sending does."""
        left = len(self._parts)
        lock = threading.Lock()

        def one_done() -> None:
            nonlocal left
            with lock:
                left -= 1
                last = left == 0
            if last:
                callback(self)

        if not left:
            callback(self)
        for batch, _, _ in self._parts:
            batch.when_done(one_done)

    def result(self, timeout: float | None = None) -> list[Placed]:
        """Return the place of each message. Raises the first error; else as Sending does."""
        self._wait_all(timeout)
        return self._placed()

    def errors(self, timeout: float | None = None) -> dict[int, KvcqError]:
        """Return the errors of failed messages by index in the list. Raises DeadlineError."""
        self._wait_all(timeout)
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

    def _wait_all(self, timeout: float | None) -> None:
        end_s = None if timeout is None else monotonic() + timeout
        for batch, _, _ in self._parts:
            batch.wait(None if end_s is None else max(0.0, end_s - monotonic()))

    def _placed(self) -> list[Placed]:
        """Wait until all are done. Raises the first error."""
        for error in self.errors().values():
            raise error
        return [
            batch.placed(index) for batch, begin, end in self._parts for index in range(begin, end)
        ]
