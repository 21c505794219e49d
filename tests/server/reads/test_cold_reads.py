"""Cold reads against a clock and a log that the test moves."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from server.reads.cold_reads import _SENDING_S, FEW_BYTES_PER_S, ColdReads
from server.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Iterator

READ_CPU_S = 0.01
READ_WALL_S = 0.05


class World:
    """A clock, the processor time of the worker, and the end of the log."""

    def __init__(self) -> None:
        self.began_s = self.now_s = 100.0
        self.cpu_s = 0.0
        self.rest_busy = 1.0  # of a core: the server but for the reads
        self.process_cpu_s = 0.0
        self.is_held_up = False  # what reads take, the rest cannot
        self.end = 0
        self.slept_s: list[float] = []
        self.puts_came: list[bool] = []  # what each read was told

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        self.process_cpu_s += self.rest_busy * seconds

    def read(self, puts_come: bool) -> str:
        self.puts_came.append(puts_come)
        self.cpu_s += READ_CPU_S
        self.advance(READ_WALL_S)
        self.process_cpu_s += 0.0 if self.is_held_up else READ_CPU_S
        return "records"


@contextmanager
def cold_reads(world: World, share: float) -> Iterator[ColdReads]:
    workers = Workers(1)
    try:
        yield ColdReads(
            workers,
            share,
            lambda: world.end,
            now_s=lambda: world.now_s,
            process_cpu_s=lambda: world.process_cpu_s,
            cpu_s=lambda: world.cpu_s,
            sleep=world.sleep,
        )
    finally:
        workers.close()


def test_without_puts_nothing_waits() -> None:
    world = World()

    async def consume(reads: ColdReads) -> None:
        for _ in range(10):
            assert await reads.run(world.read, len) == "records"
            world.end += int(FEW_BYTES_PER_S * READ_WALL_S / 2)

    with cold_reads(world, 0.2) as reads:
        asyncio.run(consume(reads))
    assert not world.slept_s
    assert not any(world.puts_came)


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5])
def test_beside_puts_they_take_their_share_of_a_core(share: float) -> None:
    world = World()

    async def consume(reads: ColdReads) -> None:
        for _ in range(100):
            world.end += 100 * FEW_BYTES_PER_S
            await reads.run(world.read, len)

    with cold_reads(world, share) as reads:
        asyncio.run(consume(reads))
    # The clock stood still but for the reads' own waits for the disk, which are not charged.
    busy = world.cpu_s / (world.now_s - 100.0 - 100 * (READ_WALL_S - READ_CPU_S))
    assert busy == pytest.approx(share, rel=0.05)
    assert all(world.puts_came[5:])


@pytest.mark.parametrize(("rest_busy", "share"), [(0.0, 0.8), (0.3, 0.5), (0.7, 0.1), (0.9, 0.1)])
def test_beside_puts_that_leave_something_they_take_it(rest_busy: float, share: float) -> None:
    world = World()
    world.rest_busy = rest_busy

    async def consume(reads: ColdReads) -> None:
        for number in range(120):
            if number == 20:  # those before had looked too little
                world.began_s, world.cpu_s = world.now_s, 0.0
            world.end += 100 * FEW_BYTES_PER_S
            await reads.run(world.read, len)

    with cold_reads(world, 0.1) as reads:
        asyncio.run(consume(reads))
    busy = world.cpu_s / (world.now_s - world.began_s - 100 * (READ_WALL_S - READ_CPU_S))
    assert busy == pytest.approx(share, rel=0.1)


def test_where_they_hold_up_the_rest_they_come_down_to_their_share() -> None:
    world = World()
    world.rest_busy, world.is_held_up = 0.3, True

    async def consume(reads: ColdReads) -> None:
        for _ in range(100):
            world.end += 100 * FEW_BYTES_PER_S
            await reads.run(world.read, len)
        assert world.slept_s[-1] < READ_CPU_S
        world.rest_busy = 0.95  # producers begin at full speed
        for _ in range(100):
            world.end += 100 * FEW_BYTES_PER_S
            await reads.run(world.read, len)

    with cold_reads(world, 0.1) as reads:
        asyncio.run(consume(reads))
    assert world.slept_s[-5:] == pytest.approx([READ_CPU_S * (1 / 0.1 - 1)] * 5, rel=0.05)


def test_all_of_a_core_is_no_limit() -> None:
    world = World()

    async def consume(reads: ColdReads) -> None:
        for _ in range(10):
            world.end += 100 * FEW_BYTES_PER_S
            await reads.run(world.read, len)

    with cold_reads(world, 1.0) as reads:
        asyncio.run(consume(reads))
    assert not world.slept_s


def test_an_error_is_raised_to_the_reader() -> None:
    def broken(_puts_arrive: bool) -> str:
        raise OSError("the disk")

    async def consume(reads: ColdReads) -> None:
        with pytest.raises(OSError, match="the disk"):
            await reads.run(broken, len)

    with cold_reads(World(), 0.2) as reads:
        asyncio.run(consume(reads))


def test_what_will_be_sent_counts_as_well() -> None:
    world = World()
    waits_s = []

    async def consume(reads: ColdReads, sent: int) -> None:
        began_s = len(world.slept_s)
        for _ in range(50):
            world.end += 100 * FEW_BYTES_PER_S
            await reads.run(world.read, lambda _: sent)
        waits_s.append(sum(world.slept_s[began_s:]))

    for sent in (0, round(READ_CPU_S / _SENDING_S)):
        with cold_reads(world, 0.1) as reads:
            asyncio.run(consume(reads, sent))
    short, long = waits_s
    assert long == pytest.approx(2 * short, rel=0.1)
