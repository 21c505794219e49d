"""Sends checks to producers, for transactions that were not decided.

A group with a listener is checked every second, whatever its number of open transactions, since due
ones come first in its rows. Checks count once they were really sent. Groups without a listener are
skipped.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import count
from typing import TYPE_CHECKING, Protocol

from server.workers import Workers
from store.errors import StoreClosedError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.held import Check, Halves

logger = logging.getLogger(__name__)

LOOK_S = 1.0
#: A listener that accepts nothing for this long is skipped.
_SEND_S = 5.0
#: Checks of one group in one look.
_TOGETHER = 64
#: Producers that each of these is offered to in one turn of the loop.
_IN_A_TURN = 16


class Listener(Protocol):
    """A connected producer that answers checks."""

    def may_be_asked(self, topic: str) -> bool:
        """Whether it may be asked about transactions of the topic."""
        ...

    async def send(self, check: Check) -> None:
        """Returns once the check is sent. Raises ConnectionError if the producer is gone."""
        ...


class Checks:
    """Sends checks to the listeners of groups. Owned by the event loop's thread."""

    def __init__(self, halves: Halves) -> None:
        self._halves = halves
        self._thread = Workers(1, "transaction-check")
        # For each group, listeners by a key of their own, since ten thousand may end together.
        self._listeners: dict[str, dict[object, Listener]] = {}
        # By group, if no producer could be asked about some: due time and half of the last one that
        # was tried. The next look continues behind it, so that others have their turn.
        self._after: dict[str, tuple[int, int]] = {}
        self._task: asyncio.Task[None] | None = None
        self._turn = count()

    def close(self) -> None:
        """Wait for running work. Blocks."""
        if self._task is not None:
            self._task.cancel()
        self._thread.close()

    @property
    def listening(self) -> int:
        """Number of producers that answer checks."""
        return sum(map(len, self._listeners.values()))

    def listen(self, group: str, listener: Listener) -> Callable[[], None]:
        """Send checks to this listener, too, from now on. Returns a function that removes it, which
        may be called repeatedly."""
        listeners, key = self._listeners.setdefault(group, {}), object()
        listeners[key] = listener
        if self._task is None:
            self._task = asyncio.create_task(self._run())

        def remove() -> None:
            listeners.pop(key, None)
            if not listeners and self._listeners.get(group) is listeners:
                del self._listeners[group]
                self._after.pop(group, None)

        return remove

    async def _run(self) -> None:
        try:
            while self._listeners:
                for group in list(self._listeners):
                    try:
                        await self.look(group)
                    except StoreClosedError:
                        return
                    except StoreError as error:
                        logger.warning("producers of group %r are not asked: %s", group, error)
                await asyncio.sleep(LOOK_S)
        finally:
            self._task = None

    async def look(self, group: str) -> None:
        """Send the checks that are due. Raises what Halves.due raises."""
        due = await self._thread.run(
            self._halves.due, group, _TOGETHER, self._after.pop(group, None)
        )
        if not due:
            return
        listeners = list(self._listeners.get(group, {}).values())
        sent = await asyncio.gather(*(self._ask(listeners, check) for check in due))
        asked = [check.half for check, was_sent in zip(due, sent, strict=True) if was_sent]
        if len(asked) < len(due) and group in self._listeners:
            self._after[group] = due[-1].due_ms, due[-1].half
        if asked:
            await self._thread.run(self._halves.checked, asked)

    async def _ask(self, listeners: Sequence[Listener], check: Check) -> bool:
        """Whether a connected producer was asked. Each check begins with another one."""
        first = next(self._turn)
        for step in range(len(listeners)):
            if step % _IN_A_TURN == _IN_A_TURN - 1:
                await asyncio.sleep(0)  # ten thousand may not be asked, or not take it
            listener = listeners[(first + step) % len(listeners)]
            if not listener.may_be_asked(check.topic):
                continue
            try:
                async with asyncio.timeout(_SEND_S):
                    await listener.send(check)
            except (ConnectionError, TimeoutError):
                continue
            return True
        return False
