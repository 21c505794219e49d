"""The event loop that a process serves with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


def fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The factory for uvloop event loops, or None where uvloop is not installed and asyncio's loop
    is used."""
    try:
        import uvloop
    except ImportError:  # not made for this system: the standard loop serves as well
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
