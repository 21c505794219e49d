"""Parks a pull until its queue grows, or its wait ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, TypeVar

from kvcq_client.pb.v1 import kvcq_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from server.reads.queue_growth import QueueGrowth, QueueKey
    from server.stage import Stage

#: A parked pull answers this much before its caller's deadline: an answer that says where the
#: queue ends is worth more than DEADLINE_EXCEEDED.
DEADLINE_MARGIN_S = 0.05


class HasStatus(Protocol):
    """The outcome of one read."""

    @property
    def status(self) -> pb.PullStatus: ...


R = TypeVar("R", bound=HasStatus)


async def pull_or_wait(
    read: Callable[[], Awaitable[R]],
    key: QueueKey,
    growth: QueueGrowth,
    stage: Stage,
    wait_s: float,
) -> R:
    """What `read` gives once it is more than "no new message", or when the wait is over.

    Cancelled, it leaves nothing behind. Draining ends the wait at once.
    """
    response = await read()
    if wait_s <= 0 or response.status != pb.PULL_STATUS_NO_NEW_MESSAGE:
        return response
    grown = asyncio.Event()

    def wake(_key: QueueKey) -> None:
        grown.set()

    growth.watch(key, wake)
    stop_listening = stage.on_change(grown.set)
    try:
        async with asyncio.timeout(wait_s):
            while True:
                # Read after watching: a message that came in between is not missed.
                grown.clear()
                response = await read()
                if response.status != pb.PULL_STATUS_NO_NEW_MESSAGE or stage.is_draining:
                    return response
                await grown.wait()
    except TimeoutError:
        return response
    finally:
        growth.unwatch(key, wake)
        stop_listening()


def wait_seconds(wait_ms: int, remaining_s: float | None) -> float:
    """How long to park: what was asked for, within the caller's own deadline."""
    wait_s = wait_ms / 1000
    if remaining_s is None:
        return wait_s
    return max(0.0, min(wait_s, remaining_s - DEADLINE_MARGIN_S))
