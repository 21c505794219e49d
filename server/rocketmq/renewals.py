"""Renews messages on behalf of push consumers.

Such a client receives with `auto_renew`, and sends nothing until it has processed the message,
however long that takes. So its messages are renewed, for a short time each, as long as the client
is alive. If it has ended, or no longer calls, they are given back and redelivered soon.

All of this is in memory. After a restart each message belongs to its client until the last renewal
expires; then it is redelivered.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from server.rocketmq.clients import ClientKey, Clients
    from server.rocketmq.settling import Settling
    from server.stage import Stage

logger = logging.getLogger(__name__)

#: Group and handle.
_Key = tuple[str, str]

#: Length of a renewal, and the time until the next one.
HOLD_MS = 60_000
_AGAIN_AFTER_S = 35.0
_LOOK_EVERY_S = 5.0
#: A message is no longer renewed after this long, even if its client is alive.
LONGEST_S = 3 * 3600.0
#: Delay before messages that were given back are redelivered, so that another member can connect.
_BACK_AFTER_MS = 1000
#: Handles of one call of the store, and handles that are checked in one turn of the loop.
_TOGETHER = 256
_IN_A_TURN = 4096


class _Held(NamedTuple):
    client: ClientKey
    since_s: float
    due_s: float


class Renewals:
    """Renews messages until their clients settle them or are gone. Owned by the event loop's
    thread."""

    def __init__(
        self,
        settling: Settling,
        clients: Clients,
        stage: Stage,
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        self._settling = settling
        self._clients = clients
        self._now_s = now_s
        # Ordered by the time at which they are due.
        self._held: dict[_Key, _Held] = {}
        # So that the end of one of thousands of clients does not scan what the others hold.
        self._of_client: defaultdict[ClientKey, dict[_Key, None]] = defaultdict(dict)
        self._looking: asyncio.Task[None] | None = None
        self._giving_back: set[asyncio.Task[None]] = set()
        self._stage = stage
        stage.on_change(self._stage_changed)

    def __len__(self) -> int:
        return len(self._held)

    def begin(self, client: ClientKey, group: str, handles: Sequence[str]) -> None:
        """Renew these messages from now on. The client received them for HOLD_MS."""
        now_s = self._now_s()
        self.end(group, handles)  # a repeated receive has the same handles
        for handle in handles:
            self._held[group, handle] = _Held(client, now_s, now_s + _AGAIN_AFTER_S)
            self._of_client[client][group, handle] = None
        if self._held and self._looking is None and not self._stage.is_draining:
            self._looking = asyncio.create_task(self._look(), name="renewals")

    def end(self, group: str, handles: Iterable[str]) -> None:
        """Stop renewing these messages: they were settled. Repeatable."""
        for handle in handles:
            if held := self._held.pop((group, handle), None):
                of_client = self._of_client[held.client]
                del of_client[group, handle]
                if not of_client:
                    del self._of_client[held.client]

    def give_back(self, client: ClientKey) -> None:
        """Give back the messages of a client that has ended."""
        if client in self._of_client:
            self._in_background(self._give_back(list(self._of_client[client])))

    def give_back_undelivered(self, group: str, handles: Iterable[str]) -> None:
        """Give back messages that the client did not receive, because it had disconnected. This
        delivery does not count."""
        keys = [(group, each) for each in handles]
        self._in_background(self._give_back(keys, not_begun=True))

    def _stage_changed(self) -> None:
        if self._stage.is_draining and self._looking is not None:
            self._looking.cancel()

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    async def _look(self) -> None:
        while self._held:
            await asyncio.sleep(_LOOK_EVERY_S)
            await self.look()
        self._looking = None

    async def look(self) -> None:
        """Renew what is due, and give back the messages of clients that are gone."""
        now_s = self._now_s()
        due: list[_Key] = []
        for key, held in self._held.items():
            if held.due_s > now_s:
                break
            due.append(key)
        for first in range(0, len(due), _IN_A_TURN):
            kept: list[_Key] = []
            left: list[_Key] = []
            for key in due[first : first + _IN_A_TURN]:
                one = self._held.get(key)
                if one is not None:  # not settled meanwhile
                    is_new = now_s - one.since_s < LONGEST_S
                    lives = is_new and self._clients.is_alive(one.client)
                    (kept if lives else left).append(key)
            await self._hold_on(kept, now_s)
            await self._give_back(left)

    async def _hold_on(self, keys: list[_Key], now_s: float) -> None:
        for group, handles in _by_group(keys):
            try:
                statuses = await self._settling.hold_on(group, handles, HOLD_MS)
            except StoreError as error:  # retried before the lease ends
                logger.warning("group %r: cannot renew messages: %s", group, error)
                continue
            for handle, status in zip(handles, statuses, strict=True):
                if not self._settling.is_done(status):
                    self.end(group, [handle])
                elif one := self._held.pop((group, handle), None):
                    self._held[group, handle] = one._replace(due_s=now_s + _AGAIN_AFTER_S)

    async def _give_back(self, keys: list[_Key], *, not_begun: bool = False) -> None:
        for group, handles in _by_group(keys):
            self.end(group, handles)
            try:
                await self._settling.give_back(group, handles, _BACK_AFTER_MS, not_begun=not_begun)
            except StoreError as error:  # redelivered when the lease ends
                logger.warning("group %r: cannot give messages back: %s", group, error)


def _by_group(keys: Iterable[_Key]) -> Iterable[tuple[str, list[str]]]:
    """Yield the handles by group, in lists of at most _TOGETHER."""
    by_group: defaultdict[str, list[str]] = defaultdict(list)
    for group, handle in keys:
        by_group[group].append(handle)
    for group, handles in by_group.items():
        for first in range(0, len(handles), _TOGETHER):
            yield group, handles[first : first + _TOGETHER]
