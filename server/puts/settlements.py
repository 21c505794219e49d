"""Acknowledgements and other settlements of deliveries, answered once they are as durable as a put.

Each is a turn of the store, in the loop if nothing has to be waited for, in a thread otherwise;
then it waits in the loop for the disk.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from store.errors import AppendWouldWaitError
from store.groups import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from server.metrics import CallMetrics
    from server.puts.durability import Durability
    from server.workers import Workers
    from store.groups import Answered, SharedGroups


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

    async def acknowledge(self, group: str, handles: Sequence[str]) -> list[Outcome]:
        """Acknowledge these deliveries."""
        settle = partial(self._groups.acknowledge, group, handles, wait=False)
        return await self._settle(partial(self._metrics.acknowledged, group), settle)

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

    async def _settle(
        self, count: Callable[[int], None], settle: Callable[..., Answered]
    ) -> list[Outcome]:
        try:
            answered = settle(at_once=True)
        except AppendWouldWaitError:
            answered = await self._threads.run(settle)
        return await self._answered(count, answered)

    async def _answered(self, count: Callable[[int], None], answered: Answered) -> list[Outcome]:
        await self._durability.wait(answered.end_offset)
        count(answered.outcomes.count(Outcome.DONE))
        return answered.outcomes
