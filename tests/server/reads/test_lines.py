"""server/reads/lines.py: what is told of many groups and topics together takes no long turn of the
loop."""

from __future__ import annotations

import asyncio
import gc
from time import thread_time

import pytest

from server.reads.lines import Line, Lines
from server.reads.queue_growth import QueueGrowth
from server.stage import Stage
from store.errors import UnknownGroupError, UnknownTopicError

MANY = 4000


@pytest.fixture
async def lines() -> Lines:
    growth = QueueGrowth(asyncio.get_running_loop())
    return Lines(growth, Stage(), lambda: 0, lambda group: group != "deleted")


async def told(lines: Lines, *changed: tuple[str, str]) -> float:
    """Seconds of processor time that the loop takes to hear of it, in its first turn.

    Without the garbage collector, which looks at all that other tests left in the process.
    """
    for group, topic in changed:
        lines.changed(group, topic)
    gc.disable()
    try:
        begin_s = thread_time()
        await asyncio.sleep(0)
        return thread_time() - begin_s
    finally:
        gc.enable()


async def looked(line: Line) -> None:
    """A look has found nothing."""
    turn = await line.turn(0.0)
    assert turn is not None, "nobody else is there"
    line.looked(turn, None)
    line._empty_at = line._changes


async def test_each_line_of_a_group_of_many_is_told_what_is_its_own(lines: Lines) -> None:
    entered = [lines.enter("g", f"\0{n}") for n in range(MANY)]
    await asyncio.sleep(0)
    for line in entered:
        await looked(line)
    assert await told(lines, *[("g", f"\0{n}") for n in range(0, MANY, 2)]) < 0.02
    while any(line.is_empty for line in entered[::2]):
        await asyncio.sleep(0)
    assert all(line.is_empty for line in entered[1::2])
    assert await told(lines, ("g", "")) < 0.02
    while any(line.is_empty for line in entered):
        await asyncio.sleep(0)
    for n, line in enumerate(entered):
        lines.leave("g", f"\0{n}", line)
    assert lines.find("g", "\0" + "0") is None


async def test_a_group_of_many_that_ends_ends_all_its_lines(lines: Lines) -> None:
    entered = [lines.enter("deleted", f"\0{n}") for n in range(MANY)]
    await asyncio.sleep(0)
    assert await told(lines, ("deleted", "")) < 0.005
    while any(line._end is None for line in entered):
        await asyncio.sleep(0)
    for n, line in enumerate(entered):
        with pytest.raises(UnknownGroupError):
            await line.turn(1e9)
        lines.leave("deleted", f"\0{n}", line)


async def test_topics_that_end_together_end_the_lines_of_theirs(lines: Lines) -> None:
    entered = [lines.enter(f"g{n}", f"t{n % 1000}") for n in range(MANY)]
    await asyncio.sleep(0)
    assert await told(lines, *[("", f"t{n}") for n in range(500)]) < 0.02
    while any(line._end is None for n, line in enumerate(entered) if n % 1000 < 500):
        await asyncio.sleep(0)
    for n, line in enumerate(entered):
        has_ended = n % 1000 < 500
        assert (lines.find(f"g{n}", line.topic) is None) == has_ended
        if has_ended:
            with pytest.raises(UnknownTopicError):
                await line.turn(1e9)
        lines.leave(f"g{n}", line.topic, line)
