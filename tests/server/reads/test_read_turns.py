"""server/reads/read_turns.py: reads that come together leave the loop to others in between."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from server.reads import read_turns
from server.reads.read_turns import AT_A_TIME, ReadTurns
from tests.support.until import LIMIT_S

if TYPE_CHECKING:
    import pytest


async def test_reads_that_come_at_once_are_spread_over_turns_of_the_loop_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read_turns, "TURN_S", 0.0)  # the first one takes all of it
    turns = ReadTurns(asyncio.get_running_loop())
    loop_turns, read_in = 0, []

    async def read(number: int) -> None:
        await turns.next()
        read_in.append((number, loop_turns))

    readers = [asyncio.create_task(read(number)) for number in range(10 * AT_A_TIME)]
    while not all(reader.done() for reader in readers):
        await asyncio.sleep(0)
        loop_turns += 1
    assert [number for number, _ in read_in] == list(range(10 * AT_A_TIME))
    for at in {turn for _, turn in read_in}:
        assert [turn for _, turn in read_in].count(at) <= AT_A_TIME
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert turns._until_s is None, "nothing is left behind"


async def test_one_that_is_given_up_takes_nobodys_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_turns, "TURN_S", 0.0)
    turns = ReadTurns(asyncio.get_running_loop())
    waiting = [asyncio.create_task(turns.next()) for _ in range(4 * AT_A_TIME)]
    await asyncio.sleep(0)
    for task in waiting[: 2 * AT_A_TIME]:
        task.cancel()
    async with asyncio.timeout(LIMIT_S):
        await asyncio.gather(*waiting[2 * AT_A_TIME :])
