"""Keeps readiness in step with the store: a server whose store cannot write is not ready."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from server.stage import Stage
    from store.message_store import MessageStore

logger = logging.getLogger(__name__)

#: A look reads a few attributes.
LOOK_EVERY_S = 1.0


async def watch_writes(store: MessageStore, stage: Stage) -> None:
    """Until cancelled, update the stage: whether the store accepts puts, and what is wrong with the
    clock. Logs each change."""
    last: str | None = None
    remark: str | None = None
    while True:
        about_clock = store.health.clock_warning()
        if (about_clock is None) != (remark is None):
            logger.error("%s", about_clock or "the clock is correct again")
        remark = about_clock
        stage.set_remark(remark)
        why_not = store.health.why_not_writable()
        if (why_not is None) != (last is None):
            if why_not is None:
                logger.warning("ready again: the store accepts writes")
            else:
                logger.error("not ready: the store rejects writes: %s", why_not)
        last = why_not
        stage.set_no_writes(why_not)
        await asyncio.sleep(LOOK_EVERY_S)
