"""Receivers from lite topics: what a client is subscribed to, said again and again."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from kvcq_client.arguments import start_of, text
from kvcq_client.calls import NAMES_A_CALL, AtTime
from kvcq_client.errors import KvcqError, NotFoundError, NotPossibleError, RetryableError
from kvcq_client.pb.v1 import lite_topics_pb2 as lite_pb
from kvcq_client.receiving.async_receiver import AsyncReceiver
from kvcq_client.receiving.core import WAIT_S, ReceiverCore
from kvcq_client.receiving.receiver import Receiver
from kvcq_client.transport import ThreadWaits, blocking, in_background, in_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kvcq_client.calls import Calls, LiteStart
    from kvcq_client.receiving.config import ReceiverConfig
    from kvcq_client.shared_groups import LiteSettings, Received
    from kvcq_client.transport import Connection, LoopThread
    from kvcq_client.values import Start

logger = logging.getLogger(__name__)

#: How often all subscriptions are sent: the server forgets a client after three minutes.
_SYNC_S = 30.0


class LiteCore(ReceiverCore):
    """The side of a lite receiver that is in the event loop."""

    def __init__(
        self,
        connection: Connection,
        calls: Calls,
        parent: str,
        config: ReceiverConfig,
        settings: LiteSettings,
        in_order: bool,  # noqa: FBT001 - by position in one place
        forget: Callable[[ReceiverCore], None],
    ) -> None:
        super().__init__(connection, calls, (parent,), config, forget)
        self._settings = settings
        self._in_order = in_order
        self._client_id = secrets.token_hex(8)
        self._version = int(time.time() * 1000)
        self._syncing = asyncio.Lock()
        self._is_known = False  # the server knows the subscriptions
        # Guarded by _names_lock.
        self._names_lock = threading.Lock()
        self._names: dict[str, None] = {}
        self._lost: dict[str, None] = {}

    @property
    def subscribed(self) -> list[str]:
        with self._names_lock:
            return list(self._names)

    def take_lost(self) -> list[str]:
        """What others have taken since the last call. Thread: any."""
        with self._names_lock:
            lost, self._lost = list(self._lost), {}
        return lost

    async def subscribe(self, names: Sequence[str], start: LiteStart | None) -> None:
        async with self._syncing:
            await self._made()
            for part in in_parts(names, NAMES_A_CALL):
                count = await self._say(lite_pb.LITE_ACTION_ADD, part, start)
                with self._names_lock:
                    self._names.update(dict.fromkeys(part))
                    for name in part:
                        self._lost.pop(name, None)
                await self._say_more(count)

    async def unsubscribe(self, names: Sequence[str]) -> None:
        async with self._syncing:
            with self._names_lock:
                for name in names:
                    self._names.pop(name, None)
            for part in in_parts(names, NAMES_A_CALL):
                await self._say_more(await self._say(lite_pb.LITE_ACTION_REMOVE, part, None))

    # --- receiving -------------------------------------------------------------------------

    _acknowledges = False

    async def _prepare(self) -> None:
        await self._made()
        await super()._prepare()
        self._tasks.append(in_background(self._keep_known(), "kvcq-subscribing"))

    async def _made(self) -> None:
        """The group exists, and is bound to this parent. Raises NotFoundError, NotPossibleError,
        also if the group is of another kind than was asked for."""
        group, parent = self.config.group, self._settings.parent
        try:
            found = (await self._calls.describe_group(group)).settings
        except NotFoundError:
            # First, since a group stays bound to the parent that it was created with.
            try:
                await self._calls.lite_expiry_s(parent)
            except NotFoundError as error:
                why = f"{error.message}: create it with create_lite_parent"
                raise NotFoundError(why, error.reason, error.metadata) from None
            await self._calls.create_group(
                group, in_order=self._in_order or None, lite=self._settings
            )
            return
        lite = found.lite if found else None
        if lite is None:
            return  # the server refuses what follows
        asked = self._settings
        if lite.parent != parent:
            differs = f"bound to the lite topics of {lite.parent!r}, not of {parent!r}"
        elif (asked.wildcard and not lite.wildcard) or (asked.exclusive and not lite.exclusive):
            differs = f"{_kind_of(lite)}, not {_kind_of(asked)}"
        else:
            return
        raise NotPossibleError(
            f"group {group!r} is {differs}: use another group, or delete this one",
            "LITE_GROUP",
            {"group": group, "parent": lite.parent},
        )

    async def _receive_some(self, topic: str, count: int, size: int) -> list[Received]:
        if not self._is_known:
            await self._say_all()
        try:
            found = await self._calls._receive_lite(  # noqa: SLF001 - made for this
                topic,
                group=self.config.group,
                client_id=self._client_id,
                max_messages=count,
                max_bytes=size,
                wait_s=WAIT_S,
                invisible_s=self._lease_s,
                skip_damaged=self.config.skip_damaged,
                late=partial(self._calls._give_back_late, self.config.group),  # noqa: SLF001 - as above
            )
        except NotPossibleError as error:
            if error.reason != "LITE_CLIENT_UNKNOWN":
                raise
            self._is_known = False  # the server was restarted, for example
            return []
        self._forget_lost(found.lost)
        return found.messages

    async def _keep_known(self) -> None:
        while True:
            await asyncio.sleep(_SYNC_S)
            try:
                await self._say_all()
            except RetryableError as error:
                logger.warning("group %s: %s; trying again", self.config.group, error)
            except KvcqError as error:
                logger.error("group %s: subscriptions: %s", self.config.group, error)

    async def _say_all(self) -> None:
        async with self._syncing:
            await self._say(lite_pb.LITE_ACTION_COMPLETE, self.subscribed, None)
            self._is_known = True

    async def _say_more(self, count: int) -> None:
        """Say all if the server knows only `count`: after a restart a change makes the client known
        again, but not the subscriptions before it."""
        if count < len(self.subscribed):
            await self._say(lite_pb.LITE_ACTION_COMPLETE, self.subscribed, None)

    async def _say(
        self, action: lite_pb.LiteAction, names: Sequence[str], start: LiteStart | None
    ) -> int:
        """Returns how many lite topics the server has the client subscribed to."""
        self._version += 1
        count, lost = await self._calls._sync_lite(  # noqa: SLF001 - made for this
            self.config.group, self._client_id, action, names, self._version, start
        )
        self._forget_lost(lost)
        return count

    def _forget_lost(self, lost: Iterable[str]) -> None:
        with self._names_lock:
            for name in lost:
                if self._names.pop(name, name) is None:
                    self._lost[name] = None

    async def _close(self, running: set) -> None:  # type: ignore[type-arg]
        await super()._close(running)
        with suppress(KvcqError):
            await self._say(lite_pb.LITE_ACTION_LEAVE, (), None)


class AsyncLiteReceiver(AsyncReceiver):
    """Receives from lite topics of a parent: from those that it is subscribed to, or, in a wildcard
    group, from all.

    Everything else is as with AsyncReceiver. Subscriptions end with the receiver; where the group
    is in each lite topic stays. Made by `AsyncClient.lite_receiver`.
    """

    _core: LiteCore

    @property
    def subscribed(self) -> list[str]:
        """Lite topics that this receiver is subscribed to."""
        return self._core.subscribed

    def lost(self) -> list[str]:
        """Lite topics of an exclusive group that other receivers have taken from this one since the
        last call. Subscribe to one again to take it back."""
        return self._core.take_lost()

    async def subscribe(
        self, lite_topics: str | Iterable[str], *, start: Start | str | int | datetime | None = None
    ) -> AsyncLiteReceiver:
        """Receive from these lite topics as well; they need not exist. Returns the receiver.

        `start`: where the group goes on in those that are new to this receiver: EARLIEST, LATEST,
        an offset, or, below 0, that many messages before the end; or a datetime with a time zone:
        the first message that was stored then or later. By default where it was, or with the first
        message. Raises ResourceExhaustedError for more names than the group allows,
        InvalidArgumentError.
        """
        await self._waits.in_loop(self._core.subscribe(_names(lite_topics), _place_of(start)))
        return self

    async def unsubscribe(self, lite_topics: str | Iterable[str]) -> None:
        """Receive from these no longer. Repeatable."""
        await self._waits.in_loop(self._core.unsubscribe(_names(lite_topics)))


class LiteReceiver(Receiver):
    """AsyncLiteReceiver for blocking code. Made by `Client.lite_receiver`."""

    _core: LiteCore
    _calls: AsyncLiteReceiver

    def __init__(self, core: LiteCore, thread: LoopThread) -> None:
        super().__init__(core, thread)
        self._calls = AsyncLiteReceiver(core, ThreadWaits(thread))

    @property
    def subscribed(self) -> list[str]:
        """Lite topics that this receiver is subscribed to."""
        return self._core.subscribed

    def lost(self) -> list[str]:
        """See AsyncLiteReceiver."""
        return self._core.take_lost()

    def subscribe(
        self, lite_topics: str | Iterable[str], *, start: Start | str | int | datetime | None = None
    ) -> LiteReceiver:
        self._run(self._calls.subscribe(lite_topics, start=start))
        return self

    subscribe.__doc__ = AsyncLiteReceiver.subscribe.__doc__

    unsubscribe = blocking(AsyncLiteReceiver.unsubscribe)


def _kind_of(lite: LiteSettings) -> str:
    if lite.wildcard:
        return "a wildcard group"
    return "an exclusive group" if lite.exclusive else "neither wildcard nor exclusive"


def _names(lite_topics: str | Iterable[str]) -> list[str]:
    if isinstance(lite_topics, str):
        lite_topics = (lite_topics,)
    return list(dict.fromkeys(text("lite_topics", name) for name in lite_topics))


def _place_of(start: Start | str | int | datetime | None) -> LiteStart | None:
    """Raises TypeError, ValueError."""
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise ValueError(f"start: {start} has no time zone")
        return AtTime(max(0, round(start.timestamp() * 1000)))
    return start if start is None or isinstance(start, int) else start_of("start", start)
