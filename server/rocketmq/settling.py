"""What becomes of messages that were handed over, in the words of RocketMQ 5's clients.

A handle that came too late, or never was one, has a code of its own: clients write a line to their
log and go on. At anything else a push consumer tries again for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.rocketmq.pb import values_pb2 as v2
from server.rocketmq.statuses import OK
from store.groups import Outcome, is_handle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from server.metrics import CallMetrics
    from server.puts import Durability
    from server.workers import Workers
    from store.groups import Answered, SharedGroups

_STATUSES = {
    Outcome.DONE: OK,
    Outcome.NOT_IN_FLIGHT: v2.Status(
        code=v2.INVALID_RECEIPT_HANDLE,
        message="acknowledged before, or delivered again since: this handle came too late",
    ),
    Outcome.QUEUE_ENDED: v2.Status(
        code=v2.INVALID_RECEIPT_HANDLE, message="the topic was deleted since"
    ),
}
_NO_HANDLE = v2.Status(
    code=v2.INVALID_RECEIPT_HANDLE, message="no handle of a message that this group received"
)


class Settling:
    """Owned by the event loop's thread."""

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

    async def acknowledge(self, group: str, handles: Sequence[str]) -> list[v2.Status]:
        """One for each handle, once it is as durable as a put."""
        return await self._settle(
            "messages_acknowledged",
            group,
            handles,
            lambda good: self._groups.acknowledge(group, good, wait=False),
        )

    async def hold_on(self, group: str, handles: Sequence[str], hold_ms: int) -> list[v2.Status]:
        """They may be delivered again after so long; until then the handles stay good."""
        return await self._settle(
            "messages_held_on",
            group,
            handles,
            lambda good: self._groups.change_invisible(group, good, hold_ms, wait=False),
        )

    async def give_back(self, group: str, handles: Sequence[str], delay_ms: int) -> list[v2.Status]:
        """The same; the handles are of no use any more."""
        return await self._settle(
            "messages_given_back",
            group,
            handles,
            lambda good: self._groups.give_back(group, good, delay_ms, wait=False),
        )

    async def bury(self, group: str, handle: str) -> v2.Status:
        """It is a dead letter. A client tries again for ever until it is told that it is done, and
        so is one that comes too late: the message is a dead letter, or somebody else has it."""
        (status,) = await self._settle(
            "messages_buried",
            group,
            [handle],
            lambda _: self._groups.bury(group, handle, wait=False),
        )
        return status if status is _NO_HANDLE else OK

    @staticmethod
    def is_done(status: v2.Status) -> bool:
        return status.code == v2.OK

    async def _settle(
        self,
        name: str,
        group: str,
        handles: Sequence[str],
        settle: Callable[[list[str]], Answered],
    ) -> list[v2.Status]:
        good = [each for each in handles if is_handle(group, each)]
        outcomes: Iterator[Outcome] = iter(())  # of the good ones
        if good:
            answered = await self._threads.run(settle, good)
            await self._durability.wait(answered.end_offset)
            self._metrics.count(name, answered.outcomes.count(Outcome.DONE))
            outcomes = iter(answered.outcomes)
        left = set(good)
        return [_STATUSES[next(outcomes)] if each in left else _NO_HANDLE for each in handles]
