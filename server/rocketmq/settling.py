"""Settles deliveries for RocketMQ 5's clients.

A late or invalid handle gets a code of its own: clients log it and continue. After any other error
a push consumer retries forever.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from server.rocketmq.pb import values_pb2 as v2
from server.rocketmq.statuses import OK
from store.errors import GroupKindError, UnknownGroupError
from store.groups import Outcome, is_handle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from server.puts import Settlements

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
_GROUP_ENDED = v2.Status(code=v2.INVALID_RECEIPT_HANDLE, message="the group was deleted since")
_NO_HANDLE = v2.Status(
    code=v2.INVALID_RECEIPT_HANDLE, message="no handle of a message that this group received"
)


class Settling:
    """Settles deliveries. Owned by the event loop's thread."""

    def __init__(self, settlements: Settlements) -> None:
        self._settlements = settlements

    async def acknowledge(self, group: str, handles: Sequence[str]) -> list[v2.Status]:
        """Acknowledge. Returns a status for each handle, once that is as durable as a put."""
        return await self._settle(group, handles, self._settlements.acknowledge)

    async def hold_on(self, group: str, handles: Sequence[str], hold_ms: int) -> list[v2.Status]:
        """Keep the deliveries for `hold_ms` from now on; the handles stay valid."""
        return await self._settle(
            group, handles, partial(self._settlements.hold_on, hold_ms=hold_ms)
        )

    async def give_back(
        self, group: str, handles: Sequence[str], delay_ms: int, *, not_begun: bool = False
    ) -> list[v2.Status]:
        """Make the messages available after `delay_ms`; the handles become invalid. With
        `not_begun` this delivery does not count."""
        give_back = partial(self._settlements.give_back, delay_ms=delay_ms, not_begun=not_begun)
        return await self._settle(group, handles, give_back)

    async def bury(self, group: str, handle: str) -> v2.Status:
        """Make the message a dead letter. A late handle counts as success, because a client retries
        until it succeeds: the message already is a dead letter, or another member has it, or the
        group was deleted."""
        if not is_handle(group, handle):
            return _NO_HANDLE
        with suppress(GroupKindError, UnknownGroupError):
            await self._settlements.bury(group, handle)
        return OK

    @staticmethod
    def is_done(status: v2.Status) -> bool:
        return status.code == v2.OK

    async def _settle(
        self,
        group: str,
        handles: Sequence[str],
        settle: Callable[[str, list[str]], Awaitable[list[Outcome]]],
    ) -> list[v2.Status]:
        good = [each for each in handles if is_handle(group, each)]
        try:
            outcomes = iter(await settle(group, good) if good else ())
        except (GroupKindError, UnknownGroupError):  # deleted, or created anew as a reader group
            return [_GROUP_ENDED] * len(handles)
        left = set(good)
        return [_STATUSES[next(outcomes)] if each in left else _NO_HANDLE for each in handles]
