"""Followed queues and the wait for them, shared by pulls and subscriptions.

A queue is *ready* when there may be something to read: when it is first followed, and each time it
grew or was deleted since. Ready queues are read in turn. Waiting is level-triggered: a change
during a read ends the next wait at once, so nothing is missed between a read and a wait.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.reads.queue_growth import QueueGrowth, QueueKey
    from server.stage import Stage


class ReadyQueues:
    """The followed queues of one pull or subscription. Owned by the event loop's thread.

    Every followed queue must be left, and `close` called.
    """

    __slots__ = (
        "_event",
        "_first",
        "_grew",
        "_growth",
        "_next",
        "_round",
        "_stop_listening",
        "_turns",
        "_unread",
    )

    def __init__(self, growth: QueueGrowth, stage: Stage) -> None:
        """A change of the stage ends waits, and so does draining."""
        self._growth = growth
        # In plain dicts: one that grows to 100,000 queues stops the loop for 5 ms then, and an
        # OrderedDict for 20.
        self._round: dict[QueueKey, bool] = {}  # whether it is ready and its turn is to come
        self._turns = iter(self._round)
        self._unread = 0  # queues of this round that are still to be read
        self._next: dict[QueueKey, bool] = {}  # the next round
        self._first: dict[QueueKey, None] = {}  # before the rest of this round; last in, first out
        self._event = asyncio.Event()
        self._grew = self._changed  # one object, whatever the number of queues
        self._stop_listening = stage.on_change(self._event.set)

    def __bool__(self) -> bool:
        """Whether a queue is ready."""
        return bool(self._unread or self._next or self._first)

    def follow(self, key: QueueKey) -> None:
        """Follow the queue: it is ready now, and after each change, until `leave`. Repeatable."""
        self._growth.watch(key, self._grew)
        self.make_ready(key)

    def leave(self, key: QueueKey) -> None:
        """Stop following. Repeatable."""
        self._forget_turn(key)
        self._growth.unwatch(key, self._grew)

    def close(self) -> None:
        self._stop_listening()

    def make_ready(self, key: QueueKey) -> None:
        """There is more to read; a queue that is already ready keeps its turn."""
        if not self._round.get(key) and key not in self._first:
            self._next[key] = True

    def next(self) -> QueueKey:
        """The next ready queue, which is then no longer ready. Raises KeyError if there is none."""
        if self._first:
            return self._first.popitem()[0]
        if not self._unread:
            self._round, self._next = self._next, {}
            self._turns, self._unread = iter(self._round), len(self._round)
        for key in self._turns:
            if self._round[key]:
                self._round[key] = False
                self._unread -= 1
                return key
        assert self._unread == 0, f"{self._unread} queues are ready, and none has a turn"
        raise KeyError("no queue is ready")

    def put_back(self, keys: Sequence[QueueKey]) -> None:
        """These were not read: they are first again, in that order."""
        for key in reversed(keys):
            self._forget_turn(key)  # it may have become ready meanwhile
            self._first[key] = None

    def wake(self) -> None:
        """End the wait for a reason of the caller."""
        self._event.set()

    async def until_any(self, until_s: float | None = None) -> bool:
        """Wait until a queue, the stage or the caller's reason has changed since the last wait.

        Returns False at `until_s`, on the loop's clock.
        """
        try:
            async with asyncio.timeout_at(until_s):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True

    def _forget_turn(self, key: QueueKey) -> None:
        if self._round.get(key):
            self._round[key] = False  # no pop: `_turns` is on its way through it
            self._unread -= 1
        self._next.pop(key, None)
        self._first.pop(key, None)

    def _changed(self, key: QueueKey) -> None:
        self.make_ready(key)
        self._event.set()
