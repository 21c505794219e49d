"""Renews messages on behalf of push consumers.

Such a client receives with `auto_renew` and sends nothing more until it is done, however long that
takes. So its messages are renewed, for a short time each, as long as the client is alive. When it
has ended, or is silent, they are given back, to be delivered again soon.

None of this outlives the process. After a restart each message belongs to its client until the last
renewal expires; then it is delivered again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from store.errors import GroupKindError, StoreError, UnknownGroupError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from server.rocketmq.clients import ClientKey, Clients
    from server.rocketmq.settling import Settling
    from server.stage import Stage

logger = logging.getLogger(__name__)

#: Group and handle.
_Key = tuple[str, str]

#: How long a message is its client's without being held on to again, and when it is again.
HOLD_MS = 60_000
_AGAIN_AFTER_S = 35.0
_LOOK_EVERY_S = 5.0
#: However alive its client is, a message is delivered again after this long.
LONGEST_S = 3 * 3600.0
#: What is given back may be delivered again after this long: the next member's chance to be there.
_BACK_AFTER_MS = 1000
#: Handles of one call of the store, and those that are looked at in one turn of the loop.
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
        # In the order in which they are due.
        self._held: dict[_Key, _Held] = {}
        # When one of thousands of clients ends, nobody looks at what the others hold.
        self._of_client: defaultdict[ClientKey, dict[_Key, None]] = defaultdict(dict)
        self._looking: asyncio.Task[None] | None = None
        self._giving_back: set[asyncio.Task[None]] = set()
        self._stage = stage
        stage.on_change(self._stage_changed)

    def __len__(self) -> int:
        return len(self._held)

    def begin(self, client: ClientKey, group: str, handles: Sequence[str]) -> None:
        """The client received these messages, for HOLD_MS."""
        now_s = self._now_s()
        self.end(group, handles)  # a receive that is made again has the same ones
        for handle in handles:
            self._held[group, handle] = _Held(client, now_s, now_s + _AGAIN_AFTER_S)
            self._of_client[client][group, handle] = None
        if self._held and self._looking is None and not self._stage.is_draining:
            self._looking = asyncio.create_task(self._look(), name="renewals")

    def end(self, group: str, handles: Iterable[str]) -> None:
        """These deliveries were settled. Repeatable."""
        for handle in handles:
            if held := self._held.pop((group, handle), None):
                of_client = self._of_client[held.client]
                del of_client[group, handle]
                if not of_client:
                    del self._of_client[held.client]

    def give_back(self, client: ClientKey) -> None:
        """The client has ended: give its messages back."""
        if client in self._of_client:
            self._in_background(self._give_back(list(self._of_client[client])))

    def give_back_undelivered(self, group: str, handles: Iterable[str]) -> None:
        """The client went away before it received these."""
        self._in_background(self._give_back([(group, each) for each in handles]))

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
                if one is not None:  # it was not settled meanwhile
                    is_new = now_s - one.since_s < LONGEST_S
                    lives = is_new and self._clients.is_alive(one.client)
                    (kept if lives else left).append(key)
            await self._hold_on(kept, now_s)
            await self._give_back(left)

    async def _hold_on(self, keys: list[_Key], now_s: float) -> None:
        for group, handles in _by_group(keys):
            try:
                statuses = await self._settling.hold_on(group, handles, HOLD_MS)
            except (UnknownGroupError, GroupKindError):  # it was deleted, and these with it
                self.end(group, handles)
                continue
            except StoreError as error:  # a later look comes before their time is over
                logger.warning("group %r: cannot hold on to messages: %s", group, error)
                continue
            for handle, status in zip(handles, statuses, strict=True):
                if not self._settling.is_done(status):
                    self.end(group, [handle])
                elif one := self._held.pop((group, handle), None):
                    self._held[group, handle] = one._replace(due_s=now_s + _AGAIN_AFTER_S)

    async def _give_back(self, keys: list[_Key]) -> None:
        for group, handles in _by_group(keys):
            self.end(group, handles)
            try:
                await self._settling.give_back(group, handles, _BACK_AFTER_MS)
            except StoreError as error:  # they are delivered again when their time is over
                logger.warning("group %r: cannot give messages back: %s", group, error)


def _by_group(keys: Iterable[_Key]) -> Iterable[tuple[str, list[str]]]:
    """Handles of one group, as many as one call accepts."""
    by_group: defaultdict[str, list[str]] = defaultdict(list)
    for group, handle in keys:
        by_group[group].append(handle)
    for group, handles in by_group.items():
        for first in range(0, len(handles), _TOGETHER):
            yield group, handles[first : first + _TOGETHER]
