"""kvcq_client/transport/lone_calls.py: calls without a thread in between, and what may happen to
them there."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from random import Random
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from kvcq_client import Client, ClosedError, DeadlineError, Message, Start, UnavailableError
from kvcq_client.transport import channel, lone_calls
from kvcq_client.transport.lone_calls import LoneCalls, LoneStream
from server.edge.call_gate import CallKind
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcq_client.transport.connection import Connection
    from tests.support.cut_line import CutLine
    from tests.support.serving import Served

ROOT = Path(__file__).parents[3]


def a_message(body: bytes = b"x") -> Message:
    return Message("T", body, 0)


def with_stream(client: Client) -> Client:
    """The client, once it has a stream for lone calls, and topic T."""
    client.create_topic("T", 1)
    end_s = monotonic() + 30
    while not has_stream(client):
        assert monotonic() < end_s
        client.pull("T", 0, 0, max_messages=1)
    return client


def has_stream(client: Client) -> bool:
    return any(stream.is_open() for stream in client._lone._idle)


def connected(target: str) -> Client:
    return with_stream(Client(target, timeout_s=20))


def _not_for_a_look(
    stream: LoneStream, tag: str, until: Callable[[LoneStream, str], None] = LoneStream._until
) -> None:
    assert tag != lone_calls._LOOKED
    until(stream, tag)


def put_for_ever(client: Client) -> None:
    while True:
        client.put(a_message())


def bodies(client: Client) -> list[bytes]:
    found: list[bytes] = []
    while part := client.pull("T", 0, len(found)).messages:
        found += [message.body for message in part]
    return found


async def test_whatever_threads_do_at_once_each_gets_the_answers_to_its_own_calls(
    served: Served,
) -> None:
    """Small calls and large ones, alone and in company, from threads that come and go."""
    placed: dict[int, bytes] = {}

    def work(client: Client, name: int) -> None:
        random = Random(name)
        last = -1
        for number in range(random.randrange(20, 120)):
            body = b"%d %d " % (name, number) + bytes(random.choice([0, 100, 70_000]))
            offset = client.put(a_message(body)).queue_offset
            assert offset > last, "a thread's messages keep their order"
            last = offset
            assert placed.setdefault(offset, body) is body, "an offset was told twice"
            pulled = client.pull("T", 0, offset, max_messages=1, wait_s=random.choice([0, 5]))
            assert pulled.messages[0].body == body
            assert pulled.next_offset == offset + 1

    def all_of_them() -> None:
        with Client(served.target, timeout_s=20) as client:
            with_stream(client)
            work(client, 0)
            threads = [threading.Thread(target=work, args=(client, name)) for name in range(1, 5)]
            for thread in threads:
                thread.start()
            work(client, 5)
            for thread in threads:
                thread.join()
            work(client, 6)
            assert dict(enumerate(bodies(client))) == placed

    await asyncio.to_thread(all_of_them)


async def test_a_stream_is_opened_for_who_calls_often(served: Served) -> None:
    def streams() -> int:
        return served.server._edge.gate.under_way(CallKind.STREAM)

    def work() -> None:
        with Client(served.target, timeout_s=20) as client:
            client.create_topic("T", 1)
            for _ in range(lone_calls.CALLS_BEFORE):
                client.put(a_message())
            assert client._lone._streams() == []
            with_stream(client)
            client.put(a_message())
            assert streams() == 2  # the loop has one as well

    await asyncio.to_thread(work)
    await until(lambda: not streams())


async def test_who_has_company_shares_the_stream_of_the_loop(served: Served) -> None:
    def work() -> None:
        with connected(served.target) as client:
            (stream,) = client._lone._idle
            calls = client._connection.calls
            before = stream._next_id
            calls.is_lone = False
            client.put(a_message())
            assert (stream._next_id, calls.is_lone) == (before, True)  # its answer came alone
            client.put(a_message())
            assert stream._next_id == before + 1

    await asyncio.to_thread(work)


async def test_other_releases_of_grpc_go_through_the_loop(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lone_calls, "cygrpc", None)

    def work() -> None:
        with Client(served.target, timeout_s=20) as client:
            for number in range(3 * lone_calls.CALLS_BEFORE):
                assert client.put(a_message()).queue_offset == number
            assert client._lone._streams() == []

    await asyncio.to_thread(work)


def _has_ended(stream: LoneStream, connection: Connection) -> bool:
    return not stream.is_open() and connection.calls._task is None


async def test_a_put_that_finds_its_stream_ended_is_sent_all_the_same(
    served: Served, line: CutLine
) -> None:
    client = await asyncio.to_thread(connected, line.target)
    for number in range(3):
        (stream,) = client._lone._idle
        line.cut()
        # It is told of the end by nobody: it looks. The loop's own stream must have heard of it, or
        # the put goes out on that one, and may have been stored.
        await until(partial(_has_ended, stream, client._connection))
        placed = await asyncio.to_thread(client.put, a_message(b"%d" % number))
        assert placed.queue_offset == number
        await asyncio.to_thread(with_stream, client)
    assert await asyncio.to_thread(bodies, client) == [b"0", b"1", b"2"]
    await asyncio.to_thread(client.close)


async def test_a_put_right_behind_an_answer_does_not_look_and_hears_of_the_end(
    served: Served, line: CutLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await asyncio.to_thread(connected, line.target)
    monkeypatch.setattr(lone_calls, "FRESH_S", 60.0)
    await asyncio.to_thread(client.put, a_message(b"0"))
    monkeypatch.setattr(LoneStream, "_until", _not_for_a_look)
    await asyncio.to_thread(client.put, a_message(b"1"))
    line.cut()
    with pytest.raises(UnavailableError) as caught:
        await asyncio.to_thread(client.put, a_message(b"2"))
    assert caught.value.reason == ""
    assert str(caught.value).endswith("; the server may have done it all the same")
    await asyncio.to_thread(client.ping)  # the shared stream has heard of it, too
    await asyncio.to_thread(client.put, a_message(b"3"))
    found = await asyncio.to_thread(bodies, client)
    assert found in ([b"0", b"1", b"3"], [b"0", b"1", b"2", b"3"])
    await asyncio.to_thread(client.close)


async def test_when_the_line_breaks_a_put_fails_and_a_pull_goes_again(
    served: Served, line: CutLine
) -> None:
    client = await asyncio.to_thread(connected, line.target)
    line.hold_newest()
    putting = asyncio.create_task(asyncio.to_thread(client.put, a_message(b"perhaps")))
    await line.holds.wait()
    await served.first_stored("T")
    line.cut()
    with pytest.raises(UnavailableError) as caught:
        await putting
    assert caught.value.reason == ""
    line.let_go()
    await asyncio.to_thread(with_stream, client)
    line.hold_newest()
    pulling = asyncio.create_task(asyncio.to_thread(client.pull, "T", 0, 0))
    await line.holds.wait()
    line.cut()
    assert [message.body for message in (await pulling).messages] == [b"perhaps"]
    await asyncio.to_thread(client.close)


async def test_others_go_on_while_a_call_waits(served: Served, line: CutLine) -> None:
    """Calls of other threads, and what the client does by itself."""
    client = await asyncio.to_thread(connected, line.target)
    consumer = await asyncio.to_thread(client.consumer, "T", start=Start.EARLIEST)
    line.hold_newest()
    putting = asyncio.create_task(asyncio.to_thread(client.put, a_message(b"held")))
    await line.holds.wait()
    await served.first_stored("T")

    def work() -> None:
        client.put(a_message(b"another"))
        with client.producer() as producer:
            producer.send("T", b"a producer's")
        assert [message.body for message in consumer.take(3)] == [
            b"held",
            b"another",
            b"a producer's",
        ]

    await asyncio.to_thread(work)
    assert not putting.done()
    line.let_go()
    assert (await putting).queue_offset == 0
    await asyncio.to_thread(client.close)


async def test_a_call_ends_when_its_time_is_up(
    served: Served, line: CutLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await asyncio.to_thread(connected, line.target)
    monkeypatch.setattr(lone_calls, "SHORTEST_S", 0.0)
    monkeypatch.setattr(lone_calls, "LOOK_S", 0.001)
    line.hold_newest()
    with pytest.raises(DeadlineError, match="no answer within"):
        await asyncio.to_thread(client.put, a_message(), timeout_s=0.05)
    line.let_go()
    assert (await asyncio.to_thread(client.put, a_message())).queue_offset in (0, 1)
    await asyncio.to_thread(with_stream, client)
    await asyncio.to_thread(client.close)


async def test_a_call_is_timed_also_when_an_interrupt_came_as_its_stream_was_opened(
    served: Served, line: CutLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_back = LoneCalls._give_back

    def interrupted(self: LoneCalls, stream: LoneStream) -> None:
        give_back(self, stream)
        monkeypatch.undo()
        raise KeyboardInterrupt

    def open_interrupted(client: Client) -> None:
        monkeypatch.setattr(LoneCalls, "_give_back", interrupted)
        with pytest.raises(KeyboardInterrupt):
            with_stream(client)
        with_stream(client)

    client = Client(line.target, timeout_s=20)
    await asyncio.to_thread(open_interrupted, client)
    line.hold_newest()
    begun = monotonic()
    with pytest.raises(DeadlineError, match="no answer within"):
        await asyncio.to_thread(client.put, a_message(), timeout_s=lone_calls.SHORTEST_S)
    assert monotonic() - begun < 15  # after 30 gRPC gives the connection up
    line.let_go()
    await asyncio.to_thread(client.close)


async def test_a_lock_of_grpc_that_an_interrupt_left_behind_holds_nobody_up(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has the last reference to what was thrown away, as the loop may."""
    client = await asyncio.to_thread(connected, served.target)
    enter = threading.Condition.__enter__
    left: list[int] = []  # of the thread that is interrupted: locks that it takes before

    def interrupted(self: threading.Condition) -> bool:
        taken = enter(self)
        if left and threading.get_ident() == interrupted_thread:
            left[0] -= 1
            if not left[0]:
                left.clear()
                raise KeyboardInterrupt
        return taken

    monkeypatch.setattr(threading.Condition, "__enter__", interrupted)
    interrupted_thread = 0

    def work() -> bool:
        nonlocal interrupted_thread
        interrupted_thread = threading.get_ident()
        for taken in range(1, 7):
            held = [*client._lone._idle]
            left.append(taken)
            with pytest.raises(KeyboardInterrupt):
                put_for_ever(client)
            with_stream(client)
            letting_go = threading.Thread(target=held.clear, daemon=True)
            letting_go.start()
            letting_go.join(10)
            if letting_go.is_alive():
                return True
        return False

    assert not await asyncio.to_thread(work)
    await asyncio.to_thread(client.close)


async def test_a_channel_that_is_in_use_is_not_let_go_of(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "_loops", channel._Loops())  # whatever other tests left open
    client = await asyncio.to_thread(connected, served.target)
    connection = client._connection

    async def let_go() -> bool:
        connection.let_go()
        await asyncio.gather(*connection._closing)
        connection.let_go()
        return connection._channel._channel is None

    def work() -> None:
        assert client._thread.run(let_go())
        assert client.put(a_message(b"0")).queue_offset == 0
        assert client._thread.run(let_go()), "that has a stream of its own"
        with client.consumer("T", start=Start.EARLIEST) as consumer:
            for number in range(1, 4):
                assert next(consumer).body == b"%d" % (number - 1)
                assert not client._thread.run(let_go())
                client.put(a_message(b"%d" % number))
        assert client.describe_topic("T").queue_count == 1

    await asyncio.to_thread(work)
    await asyncio.to_thread(client.close)


async def test_a_channel_is_not_let_go_of_while_another_loop_may_read_what_grpc_closes_then(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "_loops", channel._Loops())

    def work() -> None:
        with connected(served.target) as client:

            async def let_go() -> bool:
                client._connection.let_go()
                await asyncio.gather(*client._connection._closing)
                client._connection.let_go()
                return client._connection._channel._channel is None

            with Client(served.target, timeout_s=20) as other:
                other.create_topic("U", 1)
                assert not client._thread.run(let_go())
            assert client._thread.run(let_go())
            assert client.describe_topic("U").queue_count == 1

    await asyncio.to_thread(work)


#: A process of its own: where a server runs, the thread is there for it.
ALONE = """
import sys, threading
from time import monotonic
from kvcq_client import Client, Message
from kvcq_client.transport import lone_calls

def polls():
    return any("_poll_wrapper" in thread.name for thread in threading.enumerate())

lone_calls.LOOK_S, lone_calls.MANY_CALLS = 0.01, 2
with Client(sys.argv[1], timeout_s=20) as client:
    client.create_topic("T", 1)
    assert polls()
    for wanted in (False, True) * 3:
        end_s = monotonic() + 20
        while polls() is not wanted:
            if not wanted:
                client.put(Message("T", b"x", 0))
            assert monotonic() < end_s
    assert client.describe_topic("T").queue_count == 1
assert not polls(), "nobody is left whom it could tell"
print("ended")
"""


async def test_a_thread_that_makes_call_after_call_waits_for_its_socket_alone(
    served: Served,
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ALONE, served.target, cwd=ROOT, stdout=subprocess.PIPE
    )
    async with asyncio.timeout(60):
        told, _ = await process.communicate()
    assert (process.returncode, told) == (0, b"ended\n")


async def test_closing_ends_the_call_that_waits(served: Served, line: CutLine) -> None:
    client = await asyncio.to_thread(connected, line.target)
    line.hold_newest()
    putting = asyncio.create_task(asyncio.to_thread(client.put, a_message()))
    await line.holds.wait()
    async with asyncio.timeout(10):
        await asyncio.to_thread(client.close)
        with pytest.raises(ClosedError):
            await putting
    assert client._lone._streams() == []


async def test_what_runs_in_the_loop_cannot_block_it(served: Served) -> None:
    client = await asyncio.to_thread(connected, served.target)

    async def put() -> None:
        client.put(a_message())

    with pytest.raises(RuntimeError, match="the client's own thread"):
        await asyncio.to_thread(client._thread.run, put())
    await asyncio.to_thread(client.close)


# The main thread, which signals interrupt, is the server's in a test.
INTERRUPTED = """
import random, signal, sys, threading
from kvcq_client import Client, Message, Start

class Interrupted(BaseException): pass

def interrupt(*_): raise Interrupted

client = Client(sys.argv[1], timeout_s=20)
client.create_topic("T", 1)
lone = client._lone
consumer = client.consumer("T", start=Start.EARLIEST)
read = []
reading = threading.Thread(target=lambda: read.extend(
    message.body for message in iter(consumer.__next__, None) if message.body != b"end"
    or sys.exit()))
reading.start()
signal.signal(signal.SIGALRM, interrupt)
acknowledged, interrupts, number = {}, 0, 0
while interrupts < 40:
    while not any(stream.is_open() for stream in lone._idle):
        client.pull("T", 0, 0, max_messages=1)
    begun = number
    try:
        signal.setitimer(signal.ITIMER_REAL, random.random() * 0.005 + 1e-6)
        while number < begun + 1000:
            number += 1
            placed = client.put(Message("T", b"%d" % number, 0))
            acknowledged[placed.queue_offset] = b"%d" % number
    except Interrupted:
        interrupts += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    assert len(lone._streams()) == len(lone._idle)
client.put(Message("T", b"end", 0))
reading.join()
assert len(set(read)) == len(read), "stored twice"
assert all(read[offset] == body for offset, body in acknowledged.items()), "not where it was told"
client.close()
print("ended")
"""

HANDLED = """
import signal, sys
from kvcq_client import Client, ClosedError, Message

def tell(*_):
    told.append(client.put(Message("T", b"told", 0)).queue_offset)

client, told = Client(sys.argv[1], timeout_s=20), []
client.create_topic("T", 1)
signal.signal(signal.SIGALRM, tell)
put = []
for number in range(300):
    signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + number))
    put.append(client.put(Message("T", b"put", 0)).queue_offset)
while signal.getitimer(signal.ITIMER_REAL)[0]:
    pass
signal.signal(signal.SIGALRM, lambda *_: client.close())  # the last of the others was handled
assert told and sorted(put + told) == list(range(len(put) + len(told)))
signal.setitimer(signal.ITIMER_REAL, 0.001)
try:
    while True:
        client.put(Message("T", b"put", 0))
except ClosedError:
    print("ended")
"""


@pytest.mark.parametrize("script", [INTERRUPTED, HANDLED], ids=["raises", "calls the client"])
async def test_a_signal_in_the_midst_of_a_call(served: Served, script: str) -> None:
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-W", "ignore::RuntimeWarning", "-c", script, served.target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.stdout, ran.stderr) == ("ended\n", "")
