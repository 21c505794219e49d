"""The side of a receiver that is in the event loop: receives ahead, renews, and ends in order.

How far ahead: as many messages as were handed out in about the last second, and one for each reader
that waits. A receiver starts with what its readers wait for, doubles it with each call while they
are quick, and receives nothing ahead for readers that take longer than a second.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from kvcq_client.arguments import text, wrong_kind
from kvcq_client.errors import (
    ClosedError,
    KvcqError,
    NotFoundError,
    NotPossibleError,
    RetryableError,
)
from kvcq_client.receiving.deliveries import Delivery
from kvcq_client.receiving.settlements import Settlements, Told
from kvcq_client.shared_groups import SharedGroup
from kvcq_client.transport import Backoff, close_in_children, in_background
from kvcq_client.values import LIGHT_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kvcq_client.calls import Calls
    from kvcq_client.receiving.config import ReceiverConfig
    from kvcq_client.receiving.deliveries import Settlement
    from kvcq_client.receiving.settlements import Part
    from kvcq_client.shared_groups import Received, ReceivedBatch
    from kvcq_client.transport import Connection, ForkedError

logger = logging.getLogger(__name__)

_RECEIVING = "kvcq-receiving"
#: How long a call waits for messages; then the next one does.
WAIT_S = 20.0
#: A call without acknowledgements that takes longer than this waits for messages, and can be
#: cancelled without losing any.
_ANSWER_S = 0.25
#: Between calls that found nothing: a server that ends or is full may not let them wait.
_PAUSE_S = 0.05
#: Messages of one call; the server returns no more.
_A_CALL = 1024
#: How often to look for a light queue that has no message yet.
_LIGHT_LOOK_S = 1.0
#: Nothing is received while this many settlements wait to be sent.
_BEHIND = 8192


class ReceiverCore:
    """`take`, `when_ready` and what deliveries call may be called on any thread; the rest is owned
    by the event loop."""

    #: Whether receives take acknowledgements along.
    _acknowledges = True

    def __init__(
        self,
        connection: Connection,
        calls: Calls,
        topics: Sequence[str],
        config: ReceiverConfig,
        forget: Callable[[ReceiverCore], None],
    ) -> None:
        self.config = config
        self.renew_s = config.renew_s
        self._connection = connection
        self._calls = calls
        self._topics = topics
        self._forget = forget
        self._loop = asyncio.get_running_loop()
        self._lease_s = config.invisible_s or 0.0  # 0.0 until the group was asked
        self._settlements = Settlements(
            connection, calls, config.group, self._settled, self._is_receive_near
        )
        # Tasks of the receivers; empty before the first reader.
        self._tasks: list[asyncio.Task[None]] = []
        self._asked_s: dict[asyncio.Task[Any], float] = {}  # calls in progress, and when they began
        # Number of these with acknowledgements; such calls do not wait for messages.
        self._carrying = 0
        self._none_carries = asyncio.Event()
        self._none_carries.set()
        self._settling: asyncio.Task[None] | None = None
        self._held: set[Delivery] = set()
        self._room = asyncio.Event()
        self._sleeping = 0  # topics that wait for room
        self._stopping: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._finished = asyncio.Event()
        # Counts of the last whole second, and of the current one.
        self._second_s = monotonic()
        self._last_count = 0
        # Guarded by _lock.
        self._lock = threading.Lock()
        self._ready: deque[Delivery] = deque()
        self._errors: deque[KvcqError] = deque()
        self._waiters: deque[Callable[[], None]] = deque()
        self._count = 0
        self._is_stopped = False
        self._on_stop: Callable[[], None] | None = None  # set while handlers run
        close_in_children(self)

    # --- readers ---------------------------------------------------------------------------

    def take(self) -> Delivery | None:
        """The next delivery; None if there is none now. Thread: any.

        Raises the error of a topic, and ClosedError once receiving has stopped.
        """
        self._connection.check_open()
        found: Delivery | None = None
        with self._lock:
            if self._is_stopped:
                raise ClosedError("the receiver is closed")
            while self._ready and found is None:
                delivery = self._ready.popleft()
                if not delivery.is_over:
                    found = delivery
            if found is None:
                if self._errors:
                    raise self._errors.popleft()
                return None
            found.renew_until_s = 0.0
            self._count += 1
            is_low = self._sleeping and 2 * len(self._ready) <= self._count
        if is_low and not self._room.is_set():
            self._soon(self._room.set)
        return found

    @property
    def is_error_next(self) -> bool:
        """Whether `take` would raise the error of a topic."""
        return bool(self._errors) and not self._ready

    @property
    def is_stopped(self) -> bool:
        """Whether nothing more is received."""
        return self._is_stopped

    def when_ready(self, callback: Callable[[], None]) -> None:
        """Call back once `take` has something, or now if it has. Thread: any.

        Must be followed by `forget_waiter` if the caller stops waiting.
        """
        with self._lock:
            if not (self._ready or self._errors or self._is_stopped):
                self._waiters.append(callback)
                waits = True
            else:
                waits = False
        if waits:
            self._soon(self._begin)
        else:
            callback()

    def forget_waiter(self, callback: Callable[[], None]) -> None:
        """The caller waits no longer. Thread: any.

        If it was called, and has not taken what there is by now, another waiter is.
        """
        with self._lock:
            try:
                self._waiters.remove(callback)
            except ValueError:
                was_called = bool(self._ready or self._errors)
            else:
                was_called = False
        if was_called:
            self._call_waiters(1)

    def acknowledge(self, delivery: Delivery, *, may_wait: bool) -> Settlement:
        return self._settlements.add(Told("acknowledge"), delivery, may_wait=may_wait)

    def hurry(self) -> None:
        self._settlements.hurry()

    def give_back(
        self, delivery: Delivery, delay_s: float | None, *, not_begun: bool
    ) -> Settlement:
        return self._settlements.add(Told("give_back", delay_s, not_begun), delivery)

    def hold(self, delivery: Delivery, invisible_s: float) -> Settlement:
        return self._settlements.add(Told("hold", invisible_s), delivery)

    def _soon(self, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(callback)

    # --- receiving -------------------------------------------------------------------------

    def _begin(self) -> None:
        """A reader waits: begin to receive, or look for room again."""
        if not self._tasks and not self._is_stopped:
            self._settling = in_background(self._settlements.run(), "kvcq-settling")
            self._tasks.append(in_background(self._receive_all(), _RECEIVING))
        self._room.set()

    async def _receive_all(self) -> None:
        while True:
            try:
                await self._prepare()
                break
            except RetryableError as error:
                logger.warning("group %s: %s; trying again", self.config.group, error)
            except KvcqError as error:
                await self._report(error)
        self._tasks.append(in_background(self._renew(), "kvcq-renewing"))
        for topic in self._topics:
            self._tasks.append(in_background(self._receive(topic), _RECEIVING))

    async def _prepare(self) -> None:
        """Done before the first receive. Repeatable. Raises KvcqError."""
        if not self._lease_s:
            self._lease_s = await self._lease_of_group()

    async def _lease_of_group(self) -> float:
        try:
            found = await self._calls.describe_group(self.config.group)
        except NotFoundError:  # the first receive will create the group
            return SharedGroup().invisible_ms / 1000
        return (found.settings or SharedGroup()).invisible_ms / 1000

    async def _receive(self, topic: str) -> None:
        backoff = Backoff()
        is_away = False
        while True:
            count, size = await self._wait_for_room()
            if self._is_stopped:
                return
            done = self._settlements.take() if self._acknowledges else []
            try:
                received = await self._ask(topic, count, size, done)
            except RetryableError as error:
                if not is_away:
                    logger.warning("receiving from %s: %s; trying again", topic, error)
                is_away = True
                await asyncio.sleep(backoff.next_s())
                continue
            except NotFoundError as error:
                if topic.startswith(LIGHT_PREFIX) and error.reason == "UNKNOWN_TOPIC":
                    await asyncio.sleep(_LIGHT_LOOK_S)  # the light queue has no message yet
                else:
                    await self._report(error)
                continue
            except KvcqError as error:
                await self._report(error)
                continue
            is_away = False
            backoff.reset()
            if received:
                until_s = monotonic() + self._lease_s
                self._add([Delivery(one, until_s, self) for one in received])
            elif not done:
                await asyncio.sleep(_PAUSE_S)

    async def _ask(self, topic: str, count: int, size: int, done: Part) -> list[Received]:
        """Receive, and acknowledge `done` with the same call. If it fails, `done` is acknowledged
        by a call of its own."""
        this = asyncio.current_task()
        assert this is not None
        self._asked_s[this] = monotonic()
        try:
            if not done:
                self._settlements.wake_if_waiting()
                return await self._receive_some(topic, count, size)
            self._carrying += 1
            self._none_carries.clear()
            found = await self._receive_next(topic, count, size, done)
            self._settlements.taken(done, found.outcomes)
        except BaseException:
            self._settlements.put_back(done)
            raise
        else:
            return found
        finally:
            self._carrying -= bool(done)
            if not self._carrying:
                self._none_carries.set()
            del self._asked_s[this]

    def _is_receive_near(self) -> bool:
        """Whether a receive may take acknowledgements along soon: not while all wait."""
        parked = len(self._asked_s) - self._carrying
        return self._acknowledges and not self._is_stopped and parked < len(self._topics)

    async def _receive_some(self, topic: str, count: int, size: int) -> list[Received]:
        return await self._receive_next(topic, count, size, [])

    async def _receive_next(self, topic: str, count: int, size: int, done: Part) -> ReceivedBatch:
        return await self._calls.receive(
            topic,
            group=self.config.group,
            max_messages=count,
            max_bytes=size,
            wait_s=WAIT_S,
            invisible_s=self._lease_s,
            tag_filter=self.config.tag_filter,
            sql_filter=self.config.sql_filter,
            skip_damaged=self.config.skip_damaged,
            acknowledge=[delivery.received for delivery, _ in done],
        )

    def _add(self, deliveries: Sequence[Delivery]) -> None:
        self._held.update(deliveries)
        with self._lock:
            self._ready.extend(deliveries)
        self._call_waiters(len(deliveries))

    async def _report(self, error: KvcqError) -> None:
        """Let the next reader raise the error. Returns once another one waits."""
        with self._lock:
            self._errors.append(error)
        self._call_waiters(1)
        self._room.clear()
        while self._errors or not self._waiters:
            await self._room.wait()
            self._room.clear()

    def _call_waiters(self, count: int) -> None:
        for _ in range(count):
            with self._lock:
                if not self._waiters:
                    return
                waiter = self._waiters.popleft()
            waiter()

    async def _wait_for_room(self) -> tuple[int, int]:
        """Messages and bytes that may be received for a topic now. Waits until there is room."""
        topics = len(self._topics)
        self._sleeping += 1
        try:
            while True:
                self._room.clear()
                ready = tuple(self._ready)
                count = len(self._waiters) + self._ahead() - len(ready)
                size = self.config.prefetch_bytes - sum(len(one.message.record) for one in ready)
                if count > 0 and size > 0 and len(self._settlements) < _BEHIND:
                    return min(max(1, count // topics), _A_CALL), max(1, size // topics)
                await self._room.wait()
        finally:
            self._sleeping -= 1

    def _ahead(self) -> int:
        """Messages to receive ahead: those of the last second, or already more in this one."""
        now_s = monotonic()
        if now_s - self._second_s >= 1.0:
            self._last_count = self._count if now_s - self._second_s < 2.0 else 0
            self._count = 0
            self._second_s = now_s
        return min(max(self._count, self._last_count), self.config.prefetch_messages)

    # --- what is held ----------------------------------------------------------------------

    async def _renew(self) -> None:
        """Renew what waits here and what is worked on, when half of its time is over."""
        lease_s = self._lease_s
        while True:
            await asyncio.sleep(lease_s / 4)
            now_s = monotonic()
            self._held = {one for one in self._held if one.until_s > now_s}
            for delivery in self._held:
                is_due = delivery.until_s - now_s < lease_s / 2
                if is_due and now_s < delivery.renew_until_s and not delivery.is_settled:
                    self._settlements.add(Told("hold", lease_s), delivery)

    def _settled(self, deliveries: Iterable[Delivery]) -> None:
        self._held.difference_update(deliveries)
        self._room.set()

    # --- the end ---------------------------------------------------------------------------

    async def stop(self) -> None:
        """Receive nothing more, and give back what was not handed out.

        Repeatable; a concurrent call waits for the same end.
        """
        if self._stopping is None:
            self._stopping = in_background(self._stop(), "kvcq-stopping-receiver")
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            waiters, on_stop = tuple(self._waiters), self._on_stop
            self._waiters.clear()
        for waiter in waiters:
            waiter()
        if on_stop is not None:
            on_stop()
        with suppress(TimeoutError):  # otherwise the outcomes of the acknowledgements would be lost
            async with asyncio.timeout(self._connection.timeout_s):
                await self._none_carries.wait()
        receiving = [task for task in self._tasks if task.get_name() == _RECEIVING]
        asked = [task for task in receiving if task in self._asked_s]
        if asked:  # a response that is on its way would be lost
            left_s = max(self._asked_s.values()) + _ANSWER_S - monotonic()
            await asyncio.wait(asked, timeout=max(0.0, left_s))
        for task in receiving:
            task.cancel()
        await asyncio.gather(*receiving, return_exceptions=True)
        with self._lock:
            ready = tuple(self._ready)
            self._ready.clear()
        with suppress(KvcqError):  # the client is closed
            for delivery in ready:
                if not delivery.is_over:
                    delivery.give_back(0.0, not_begun=True)

    def begin_run(self, on_stop: Callable[[], None]) -> None:
        """Handlers run until `finish`; `close` then waits for that. Thread: any.

        `on_stop` is called when receiving has stopped. Raises NotPossibleError.
        """
        with self._lock:
            if self._on_stop is not None:
                raise NotPossibleError("the receiver is already running a function")
            self._on_stop = on_stop
            is_stopped = self._is_stopped
        if is_stopped:
            on_stop()

    async def end(self) -> None:
        """`close`, but handlers that run end later: `finish` is called then."""
        await (self.close() if self._on_stop is None else self.stop())

    async def close(self) -> None:
        """Stop, give back what is not settled, and wait for the outcomes of all.

        Repeatable. While handlers run, `finish` does so; this waits for it.
        """
        await self.stop()
        if self._on_stop is None:
            await self.finish(())
        else:
            await self._finished.wait()

    async def finish(self, running: Iterable[Delivery]) -> None:
        """`close`, but `running` are left to handlers that do not end. Repeatable; a concurrent
        call waits for the same end."""
        if self._closing is None:
            self._closing = in_background(self._close(set(running)), "kvcq-closing-receiver")
        await asyncio.shield(self._closing)

    async def _close(self, running: set[Delivery]) -> None:
        await self.stop()
        with suppress(KvcqError):  # the client is closed; they have that error
            for delivery in self._held - running:
                if not delivery.is_settled and not delivery.is_over:
                    delivery.give_back()
            if self._settling is not None:
                await self._flush()
        if self._settling is not None:
            self._tasks.append(self._settling)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._forget(self)
        self._finished.set()

    async def _flush(self) -> None:
        """Wait for all outcomes, but not for long: a lease may last for hours, the server away."""
        try:
            async with asyncio.timeout(self._connection.timeout_s):
                await self._settlements.flush()
        except TimeoutError:
            logger.warning(
                "group %s: the server did not answer within %g s; messages that could not be "
                "settled are delivered again when their time is over",
                *(self.config.group, self._connection.timeout_s),
            )

    def after_fork(self, error: ForkedError) -> None:
        """See Forkable."""
        self._settlements.fail(error)


def topics_of(topics: object) -> tuple[str, ...]:
    """Names of topics or light queues, each once. Raises TypeError, ValueError."""
    if isinstance(topics, str):
        topics = (topics,)
    if not isinstance(topics, list | tuple | set | frozenset):
        raise wrong_kind("topics", "the name of a topic, or a list of names", topics)
    found = tuple(dict.fromkeys(text("topics", topic) for topic in topics))
    if not 0 < len(found) <= MOST_TOPICS:
        raise ValueError(f"topics: {len(found)} names, not 1 to {MOST_TOPICS}")
    return found


#: Topics of one receiver; each has a call that waits on the server.
MOST_TOPICS = 1000
