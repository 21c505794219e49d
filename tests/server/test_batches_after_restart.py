"""Numbered batches over deletions, retention, kills and restarts: stored once, whatever is missing.

A kill is a copy of the directory while the store is open: of what was appended nothing is lost.
"""

from __future__ import annotations

import random
from binascii import crc32
from typing import TYPE_CHECKING, Self

import pytest

from server.errors import NumberPassedError, NumberReusedError, OutOfSequenceError
from server.puts.appender import Appender
from server.puts.producer_sessions import ProducerSessions
from server.workers import Workers
from store.config import FlushMode
from store.format.batch_mark import BatchMark
from store.format.properties import BATCH
from store.format.record import unpack_record
from store.message import Message
from tests.crash.images import power_loss
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import differences
from tests.support.stores import SEGMENT_BYTES, open_small
from tests.support.tree import copy_open

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from server.wire.columns import Stored

HOUR_S = 3600.0


class CopiedMark(BatchMark):
    """One that says that it stands at the start of the log."""

    def item(self, physical_offset: int) -> bytes:
        assert physical_offset
        return super().item(0)


class Server:
    """A store with a producers' table, which can be killed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._number = 0
        self.clock = FakeClock()
        self._workers = Workers(1)
        self.flush_mode = FlushMode.ASYNC
        self._open()

    def _open(self) -> None:
        self.store = open_small(
            self._directory / str(self._number),
            self.clock,
            flush_mode=self.flush_mode,
            reserved_hours=1,
        )
        self._appender = Appender(self.store, self._workers)
        self.forget()

    def forget(self) -> Self:
        """Nothing is remembered of any producer."""
        self.sessions = ProducerSessions(self.store, self._appender, self._workers, 100, 4, 1000)
        return self

    def restart(self) -> None:
        self.close_store()
        self._open()

    def close_store(self) -> None:
        self._appender.close()
        self.store.close()

    def kill(self) -> None:
        self._number += 1
        copy_open(self.store.config.root, self._directory / str(self._number))
        self.close_store()
        self._open()

    def lose_power(self, chance: random.Random) -> None:
        self._number += 1
        power_loss(self.store, self._directory / str(self._number), chance)
        self.close_store()
        self._open()

    def drop_segments(self) -> None:
        """All but the last segment expire."""
        self.clock.advance(2 * HOUR_S)
        self.store.flush()
        assert self.store._services.retention.run_once(now=True)

    async def put(self, sequence: int, *messages: Message, producer: str = "p") -> Stored:
        checksum = crc32(
            repr([message._replace(born_host=("", 0)) for message in messages]).encode()
        )
        return await self.sessions.append(producer, sequence, messages, checksum)

    def bodies(self, topic: str) -> list[bytes]:
        bounds = self.store.bounds([(topic, 0)])[0]
        pulled = self.store.pull(topic, 0, bounds.min_offset, max_messages=10_000)
        return [unpack_record(record).body for record in pulled.records]

    def close(self) -> None:
        self.close_store()
        self._workers.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    assert differences(made.store) == []
    made.close()


def message(topic: str, body: bytes = b"x", light_queues: tuple[str, ...] = ()) -> Message:
    return Message(topic, body, light_queues=light_queues)


@pytest.mark.parametrize("flush_mode", list(FlushMode))
async def test_a_batch_of_a_deleted_topic_makes_nothing_behind_it_new(
    server: Server, flush_mode: FlushMode
) -> None:
    server.flush_mode = flush_mode
    server.restart()
    batches = [[message("A", b"0")], [message("B", b"1")], [message("B", b"2")]]
    for number, batch in enumerate(batches):
        await server.put(number, *batch)
    server.store.wait_visible()
    server.store.delete_topic("A")
    server.kill()
    again = [await server.put(number, *batch) for number, batch in enumerate(batches)]
    assert [one.repeated for one in again] == [False, True, True]
    server.store.wait_visible()
    assert (server.bodies("A"), server.bodies("B")) == ([b"0"], [b"1", b"2"])
    assert not (await server.put(3, message("B", b"3"))).repeated
    # The batch that was stored anew is the one that counts from now on.
    server.kill()
    assert (await server.put(0, *batches[0])).repeated
    server.store.wait_visible()
    assert server.bodies("A") == [b"0"]


async def test_the_rest_of_a_batch_is_found_when_its_first_segment_is_gone(server: Server) -> None:
    third = SEGMENT_BYTES // 3
    batch = [message("A", bytes([number]) * third, light_queues=("%LMQ%l",)) for number in range(7)]
    first = await server.put(0, *batch)
    server.drop_segments()
    assert server.store.log.start_offset > first.columns.physical_offsets[4]
    server.kill()
    again = await server.put(0, *batch)
    assert again.repeated
    kept = len(server.bodies("A"))
    assert 0 < kept < 7
    for found, stored in zip(again.columns, first.columns, strict=True):
        assert found == [-1] * (7 - kept) + stored[7 - kept :]
    assert again.store_time_ms == first.store_time_ms
    with pytest.raises(NumberReusedError):
        await server.forget().put(0, *batch[:6], message("A", b"other"))


async def test_the_rest_of_a_batch_is_found_when_its_first_topic_is_gone(server: Server) -> None:
    batch = [message("A"), message("B"), message("A"), message("C")]
    first = await server.put(0, *batch)
    server.store.delete_topic("A")
    server.kill()
    server.store.create_topics([("A", 4)])
    assert await server.put(0, *batch) == first._replace(repeated=True)
    assert [server.bodies(name) for name in "ABC"] == [[], [b"x"], [b"x"]]


async def test_a_message_that_stands_in_a_light_queue_still_is_not_new(server: Server) -> None:
    batch = [message("A", light_queues=("%LMQ%l",))]
    first = await server.put(0, *batch)
    server.store.delete_topic("A")
    server.kill()
    assert await server.put(0, *batch) == first._replace(repeated=True)
    server.store.delete_topic("%LMQ%l")
    server.kill()
    assert not (await server.put(0, *batch)).repeated


async def test_a_batch_that_expired_is_not_stored_again(server: Server) -> None:
    await server.put(0, message("A", b"old"))
    for number in range(1, 5):
        await server.put(number, message("A", b"%d" % number * (SEGMENT_BYTES // 2)))
    server.drop_segments()
    server.kill()
    with pytest.raises(NumberPassedError) as refused:
        await server.put(0, message("A", b"old"))
    assert (refused.value.sequence, refused.value.expected_sequence) == (0, 5)
    assert (await server.put(4, message("A", b"4" * (SEGMENT_BYTES // 2)))).repeated
    assert not (await server.put(5, message("A", b"new"))).repeated


async def test_a_producer_of_which_the_log_has_nothing_begins_where_it_likes(
    server: Server,
) -> None:
    await server.put(7, message("A", b"x"))
    for number in range(6):
        server.store.put([message("B", b"%d" % number * (SEGMENT_BYTES // 2))])
    server.drop_segments()
    server.kill()
    assert not (await server.put(7, message("A", b"x"))).repeated
    assert not (await server.put(900, message("A", b"x"), producer="q")).repeated


async def test_a_gap_is_refused_after_a_restart_too(server: Server) -> None:
    """Also when the topic of all that was stored is gone: its numbers are used."""
    await server.put(0, message("A"), message("A"))
    server.store.delete_topic("A")
    server.kill()
    with pytest.raises(OutOfSequenceError) as refused:
        await server.put(3, message("B"))
    assert refused.value.expected_sequence == 2
    assert not (await server.put(2, message("B"))).repeated


async def test_a_batch_stored_anew_does_not_take_the_producer_back(server: Server) -> None:
    await server.put(0, message("A"))
    for number in range(1, 5):
        await server.put(number, message("B", b"y" * (SEGMENT_BYTES // 3)))
    server.store.delete_topic("A")
    server.kill()
    await server.put(0, message("A"))
    for number in range(6):
        server.store.put([message("C", b"%d" % number * 9000)])
    # What is left of the producer is the batch of the lowest number.
    while server.store.log.start_offset <= 4 * SEGMENT_BYTES // 3:
        server.drop_segments()
    server.kill()
    assert not (await server.put(5, message("B", b"5"))).repeated


async def test_a_place_in_the_log_that_was_copied_proves_nothing(server: Server) -> None:
    """As a broker's retry topics copy all properties of a message."""
    placed = await server.put(0, message("A"))
    [record] = server.store.pull("A", 0, 0).records
    assert BATCH not in unpack_record(record).properties
    assert BATCH.encode() in record
    copy = CopiedMark("p", 0, 1, 7, 1)
    server.store.append([message("A", b"copy")], mark=copy)
    found = server.store.batches.find("p", 0)
    assert found is not None
    places = [each and each.physical_offset for each in found.messages]
    assert places == placed.columns.physical_offsets
    server.store.append([message("A", b"copy")], mark=copy._replace(sequence=5))
    assert server.store.batches.find("p", 5) is None
    assert server.store.batches.next_sequence("p") == 1


async def test_only_unacknowledged_batches_are_new_after_a_power_loss(server: Server) -> None:
    server.flush_mode = FlushMode.SYNC
    server.restart()
    sizes = [1, 3, 2, 5, 1, 4, 2, 6]
    batches, at = [], 0
    for size in sizes:
        batches.append((at, [message("A", b"%d" % (at + n) * 300) for n in range(size)]))
        at += size
    for sequence, batch in batches[:5]:
        await server.put(sequence, *batch)
    server.store.wait_visible()
    for seed in range(4):
        for sequence, batch in batches[5:]:
            await server.put(sequence, *batch)
        server.lose_power(random.Random(seed))
        again = [await server.put(sequence, *batch) for sequence, batch in batches]
        assert all(one.repeated for one in again[:5])
        server.store.wait_visible()
        bodies = [each.body for _, batch in batches for each in batch]
        assert server.bodies("A") == bodies
