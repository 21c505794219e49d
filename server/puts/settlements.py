"""Acknowledgements and other settlements of deliveries, answered once they are as durable as a put.

Each is a turn of the store, in the loop if nothing has to be waited for, in a thread otherwise;
then it waits in the loop for the disk. Acknowledgements that arrive together are one turn: official
clients of RocketMQ acknowledge one message a call, and most of a turn does not depend on how many.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from server.puts.gathering import Gathering
from store.errors import AppendWouldWaitError, InvalidArgumentError
from store.groups import Answered, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from server.metrics import CallMetrics
    from server.puts.durability import Durability
    from server.workers import Workers
    from store.groups import SharedGroups

#: Handles that are acknowledged in one turn for several callers.
MOST_TOGETHER = 256


class _Acknowledging(NamedTuple):
    """A call that waits for its turn."""

    group: str
    handles: Sequence[str]
    done: asyncio.Future[Answered]


class Settlements:
    """Returns an outcome for each handle. Raises what SharedGroups raises. Owned by the event
    loop's thread."""

    def __init__(
        self,
        groups: SharedGroups,
        threads: Workers,
        durability: Durability,
        metrics: CallMetrics,
    ) -> None:
        self._groups = groups
        self._threads = threads
        self._durability = durability
        self._metrics = metrics
        self._loop = loop = asyncio.get_running_loop()
        self._waiting: Gathering[_Acknowledging] = Gathering(loop, self._acknowledge_waiting)
        self._waiting_handles = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def acknowledge(self, group: str, handles: Sequence[str]) -> list[Outcome]:
        """Acknowledge these deliveries, also if the caller is cancelled before their turn: it
        asked for it, and may be on its way out."""
        call = _Acknowledging(group, handles, self._loop.create_future())
        if self._waiting and self._waiting_handles + len(handles) > MOST_TOGETHER:
            self._waiting.add_to_next(call)
        else:
            self._waiting.add(call)
        self._waiting_handles += len(handles)
        return await self._answered(partial(self._metrics.acknowledged, group), await call.done)

    def acknowledge_now(self, group: str, handles: Sequence[str]) -> list[Outcome] | None:
        """Like `acknowledge`, without a turn of the loop; None, and nothing done, if it would take
        one."""
        if not self._durability.is_at_append:
            return None
        try:
            answered = self._groups.acknowledge(group, handles, wait=False, at_once=True)
        except AppendWouldWaitError:
            return None
        self._metrics.acknowledged(group, answered.outcomes.count(Outcome.DONE))
        return answered.outcomes

    async def hold_on(self, group: str, handles: Sequence[str], hold_ms: int) -> list[Outcome]:
        """Keep the deliveries for `hold_ms` from now on; the handles stay valid."""
        settle = partial(self._groups.change_invisible, group, handles, hold_ms, wait=False)
        return await self._settle(partial(self._metrics.count, "messages_held_on"), settle)

    async def give_back(
        self,
        group: str,
        handles: Sequence[str],
        delay_ms: int | None,
        *,
        not_begun: bool = False,
    ) -> list[Outcome]:
        """Make the messages available after `delay_ms`, None for the group's backoff; the handles
        become invalid. With `not_begun` this delivery does not count."""
        settle = partial(
            self._groups.give_back, group, handles, delay_ms, not_begun=not_begun, wait=False
        )
        outcomes = await self._settle(partial(self._metrics.count, "messages_given_back"), settle)
        self._metrics.groups.given_back(group, outcomes.count(Outcome.DONE))
        return outcomes

    async def bury(self, group: str, handle: str) -> list[Outcome]:
        """Make the message a dead letter."""
        answered = await self._threads.run(self._groups.bury, group, handle, wait=False)
        return await self._answered(partial(self._metrics.count, "messages_buried"), answered)

    def _acknowledge_waiting(self, waiting: list[_Acknowledging]) -> None:
        self._waiting_handles = 0
        by_group: defaultdict[str, list[_Acknowledging]] = defaultdict(list)
        for call in waiting:
            by_group[call.group].append(call)
        for calls in by_group.values():
            task = self._loop.create_task(self._acknowledge_together(calls))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _acknowledge_together(self, calls: Sequence[_Acknowledging]) -> None:
        """Acknowledge for these callers, all of one group."""
        handles = [handle for call in calls for handle in call.handles]
        acknowledge = partial(self._groups.acknowledge, calls[0].group, handles, wait=False)
        try:
            answered = await self._decided(acknowledge)
        except InvalidArgumentError as error:  # of one of the callers
            if len(calls) > 1:
                for call in calls:
                    await self._acknowledge_together([call])
            else:
                _fail(calls, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, its callers must hear it
            _fail(calls, error)
        else:
            first = 0
            for call in calls:
                last = first + len(call.handles)
                if not call.done.done():
                    call.done.set_result(answered._replace(outcomes=answered.outcomes[first:last]))
                first = last

    async def _settle(
        self, count: Callable[[int], None], settle: Callable[..., Answered]
    ) -> list[Outcome]:
        return await self._answered(count, await self._decided(settle))

    async def _decided(self, settle: Callable[..., Answered]) -> Answered:
        try:
            return settle(at_once=True)
        except AppendWouldWaitError:
            return await self._threads.run(settle)

    async def _answered(self, count: Callable[[int], None], answered: Answered) -> list[Outcome]:
        await self._durability.wait(answered.end_offset)
        count(answered.outcomes.count(Outcome.DONE))
        return answered.outcomes


def _fail(calls: Sequence[_Acknowledging], error: Exception) -> None:
    for call in calls:
        if not call.done.done():
            call.done.set_exception(error)
