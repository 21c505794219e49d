"""SYNC: no put is answered before an fsync that covers it has returned well, however it came."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from kvcq_client import AsyncClient, KvcqError, Message
from store.config import FlushMode
from tests.support.serving import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from kvcq_client import Placed
    from tests.support.serving import Served

CALLERS = 64


class Disk:
    """Remembers up to where the log was appended when the last fsync that went well began."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.served: Served | None = None
        self.durable_end = 0
        self.flushes = 0
        self.works = True
        self._flush = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", self._watched)

    def _watched(self, descriptor: int) -> None:
        end = 0 if self.served is None else self.served.store.log.appended_offset
        if not self.works:
            raise OSError(errno.EIO, "planted")
        self._flush(descriptor)
        self.flushes += 1
        self.durable_end = max(self.durable_end, end)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest_asyncio.fixture
async def client(tmp_path: Path, disk: Disk, damaged: bool) -> AsyncIterator[AsyncClient]:
    settings = {"flush_mode": FlushMode.SYNC}
    async with serving(tmp_path / "store", store=settings, damaged=damaged) as served:
        disk.served = served
        async with AsyncClient(served.target) as made:
            await made.put(Message("T", b"first"))  # makes the topic
            yield made


async def test_puts_of_many_callers_are_durable_when_they_are_answered(
    client: AsyncClient, disk: Disk
) -> None:
    early: list[Placed] = []

    async def put_some(caller: int) -> None:
        for number in range(10):
            placed = await client.put(Message("T", b"%d %d" % (caller, number)))
            if placed.physical_offset >= disk.durable_end:
                early.append(placed)

    before = disk.flushes
    await asyncio.gather(*map(put_some, range(CALLERS)))
    assert early == []
    assert 0 < disk.flushes - before < CALLERS * 10  # and they share them


async def test_lone_puts_and_batches_are_durable_when_they_are_answered(
    client: AsyncClient, disk: Disk
) -> None:
    async with client.producer() as producer:
        for number in range(10):
            placed = await client.put(Message("T", b"%d" % number))
            assert placed.physical_offset < disk.durable_end
            # More than the flush thread dispatches by itself.
            sent = [await producer.send("T", b"%d %d" % (number, at)) for at in range(100)]
            stored = await asyncio.gather(*sent)
            assert max(one.physical_offset for one in stored) < disk.durable_end


@pytest.mark.damages
async def test_after_a_failed_fsync_nobody_is_answered_well(
    client: AsyncClient, disk: Disk
) -> None:
    ends: list[Placed | KvcqError] = []

    async def put_until_refused(caller: int) -> None:
        try:
            while True:
                placed = await client.put(Message("T", b"%d" % caller))
                if placed.physical_offset >= disk.durable_end:
                    ends.append(placed)
                if disk.flushes > 20:
                    disk.works = False
        except KvcqError as error:
            ends.append(error)

    await asyncio.gather(*map(put_until_refused, range(CALLERS)))
    flushed = disk.flushes
    disk.works = True  # the disk pretends to be well again
    with pytest.raises(KvcqError):
        await client.put(Message("T", b"more"))
    assert len(ends) == CALLERS
    assert all(isinstance(end, KvcqError) for end in ends)
    assert disk.flushes == flushed
