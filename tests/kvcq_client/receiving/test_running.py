"""`run`: what returns is acknowledged, what raises is given back, and it ends in order."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kvcq_client import AsyncClient, Client, Delivery, NotFoundError, Outcome, RetryLater
from server.puts import Durability
from tests.support.child_process import child_process
from tests.support.server_process import ROOT
from tests.support.until import until

if TYPE_CHECKING:
    from tests.support.serving import Served

pytestmark = pytest.mark.integration


async def put(client: AsyncClient, count: int) -> None:
    async with client.producer() as producer:
        for number in range(count):
            await producer.send("jobs", b"%d" % number)


async def test_what_returns_is_acknowledged_and_what_raises_comes_again(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    await put(client, 100)
    tried: Counter[int] = Counter()
    receiver = client.receiver("jobs", group="g")

    async def work(delivery: Delivery) -> None:
        number = int(delivery.body)
        tried[number] += 1
        assert delivery.deliveries == tried[number]
        if number == 50 and delivery.deliveries < 3:
            raise ValueError("not yet")
        if number == 60 and delivery.deliveries < 2:
            raise RetryLater(0.1)
        if tried.total() == 103:
            await receiver.close()

    await receiver.run(work, concurrency=8)
    assert tried == Counter({**dict.fromkeys(range(100), 1), 50: 3, 60: 2})
    failed = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert [one.getMessage() for one in failed] == [
        f"<delivery {each} of {failed[0].args[0].message!r}> failed, and was given back: it is "  # type: ignore[index,union-attr]
        "delivered again, or becomes a dead letter if this was the last delivery that its group "
        "allows"
        for each in (1, 2)
    ]
    assert await client.receive("jobs", group="g") == []


async def test_a_handler_that_waits_for_something_cancelled_fails_alone(
    client: AsyncClient,
) -> None:
    await put(client, 1)
    tries = 0
    receiver = client.receiver("jobs", group="g")

    async def handle(delivery: Delivery) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            cancelled = asyncio.get_running_loop().create_future()
            cancelled.cancel()
            await cancelled
        await receiver.close()

    await client.create_group("g", backoff_ms=[0])
    await receiver.run(handle)
    assert tries == 2


async def test_acknowledgements_go_with_the_next_receive(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(client, 200)
    monkeypatch.setattr("kvcq_client.receiving.settlements.ALONE_S", 3600.0)
    seen: list[int] = []
    along: list[int] = []
    receive = client.receive

    async def counted(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - handed on
        along.append(len(kwargs.get("acknowledge", ())))
        return await receive(*args, **kwargs)

    monkeypatch.setattr(client, "receive", counted)
    receiver = client.receiver("jobs", group="g", prefetch_messages=20)

    async def work(delivery: Delivery) -> None:
        seen.append(int(delivery.body))
        if len(seen) == 200:
            await receiver.close()

    await asyncio.wait_for(receiver.run(work), 60)
    assert sorted(seen) == list(range(200))
    assert sum(along) > 100
    assert await client.receive("jobs", group="g", invisible_s=1) == []


async def test_closing_waits_for_the_outcomes_that_a_receive_brings(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(client, 2)
    monkeypatch.setattr("kvcq_client.receiving.settlements.ALONE_S", 3600.0)
    monkeypatch.setattr("kvcq_client.receiving.core._ANSWER_S", 0.01)
    receiver = client.receiver("jobs", group="g")
    first = await anext(receiver)
    held, may_go = asyncio.Event(), asyncio.Event()

    async def wait(_: Durability, end_offset: int) -> None:
        del end_offset
        held.set()
        await may_go.wait()

    monkeypatch.setattr(Durability, "is_at_append", False)
    monkeypatch.setattr(Durability, "wait", wait)
    with first:
        pass
    reader = asyncio.create_task(anext(receiver))
    await held.wait()
    closing = asyncio.create_task(receiver.close())
    await asyncio.sleep(0.1)
    may_go.set()
    await asyncio.wait_for(closing, 30)
    await asyncio.gather(reader, return_exceptions=True)
    assert await first.acknowledge() is Outcome.DONE
    (second,) = await client.receive("jobs", group="g")
    assert second.deliveries == 1


async def test_poison_becomes_a_dead_letter_and_holds_up_nothing(client: AsyncClient) -> None:
    await client.create_group("g", max_deliveries=3)
    await put(client, 20)
    tried: Counter[bytes] = Counter()
    receiver = client.receiver("jobs", group="g")

    async def work(delivery: Delivery) -> None:
        tried[delivery.body] += 1
        if delivery.body == b"7":
            raise ValueError("poison")

    running = asyncio.create_task(receiver.run(work, concurrency=2))
    async with await client.consumer() as dead:
        while True:
            try:
                await dead.follow("%DLQ%g")
                break
            except NotFoundError:
                await asyncio.sleep(0.05)
        [letter] = await dead.take(1, timeout_s=20)
    assert letter.body == b"7"
    await receiver.close()
    await running
    assert tried == Counter({**{b"%d" % each: 1 for each in range(20)}, b"7": 3})


async def test_no_more_handlers_run_at_a_time_than_was_said(client: AsyncClient) -> None:
    await put(client, 30)
    running, most, done = 0, 0, 0
    receiver = client.receiver("jobs", group="g")

    async def work(_: Delivery) -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        done += 1
        if done == 30:
            await receiver.close()

    await receiver.run(work, concurrency=4)
    assert most == 4


async def test_messages_with_one_ordering_key_are_handled_one_after_another(
    client: AsyncClient,
) -> None:
    await client.create_group("g", in_order=True)
    async with client.producer() as producer:
        for number in range(60):
            await producer.send("jobs", b"%d" % number, ordering_key=f"key-{number % 3}")
    seen: dict[str, list[int]] = {}
    running: set[str] = set()
    receiver = client.receiver("jobs", group="g")

    async def work(delivery: Delivery) -> None:
        key, number = delivery.message.ordering_key, int(delivery.body)
        assert key not in running
        running.add(key)
        await asyncio.sleep(0)
        running.discard(key)
        if number == 30 and delivery.deliveries == 1:
            raise ValueError("once more")
        seen.setdefault(key, []).append(number)
        if sum(map(len, seen.values())) == 60:
            await receiver.close()

    await receiver.run(work, concurrency=8)
    assert seen == {f"key-{key}": list(range(key, 60, 3)) for key in range(3)}


async def test_a_handler_that_does_not_end_is_cancelled_and_its_message_given_back(
    client: AsyncClient,
) -> None:
    await put(client, 1)
    receiver = client.receiver("jobs", group="g")
    begun = asyncio.Event()

    async def work(_: Delivery) -> None:
        begun.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(receiver.run(work, stop_timeout_s=0.05))
    await begun.wait()
    await receiver.close()
    await running
    [again] = await client.receive("jobs", group="g", wait_s=5)
    assert again.deliveries >= 2


async def test_a_cancelled_run_gives_back_what_it_was_at(client: AsyncClient) -> None:
    await put(client, 1)
    receiver = client.receiver("jobs", group="g")
    begun = asyncio.Event()

    async def work(_: Delivery) -> None:
        begun.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(receiver.run(work))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    [again] = await client.receive("jobs", group="g", wait_s=5)
    assert again.deliveries >= 2


async def test_the_error_of_a_topic_ends_it_and_is_raised(client: AsyncClient) -> None:
    receiver = client.receiver("nothing", group="g")

    async def work(_: Delivery) -> None: ...

    with pytest.raises(NotFoundError):
        await receiver.run(work, concurrency=3)


async def test_an_acknowledgement_that_comes_too_late_is_told(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    await put(client, 1)
    receiver = client.receiver("jobs", group="g", invisible_s=0.2, renew_s=0)
    tried = 0

    async def work(_: Delivery) -> None:
        nonlocal tried
        tried += 1
        if tried == 1:
            await until(lambda: tried == 2)
        else:
            await asyncio.sleep(0)

    running = asyncio.create_task(receiver.run(work, concurrency=2))
    await until(lambda: "was handled too late" in caplog.text)
    await receiver.close()
    await running


async def test_threads_do_the_same_and_end_with_the_receiver(
    served: Served, client: AsyncClient
) -> None:
    await put(client, 100)
    tried: Counter[int] = Counter()
    names: set[str] = set()

    def work_all() -> None:
        with Client(served.target) as blocking:
            receiver = blocking.receiver("jobs", group="g")

            def work(delivery: Delivery) -> None:
                names.add(threading.current_thread().name)
                tried[int(delivery.body)] += 1
                if int(delivery.body) == 5 and delivery.deliveries == 1:
                    raise ValueError("not yet")
                if tried.total() == 101:
                    receiver.close()

            receiver.run(work, concurrency=4)

    await asyncio.to_thread(work_all)
    assert tried == Counter({**dict.fromkeys(range(100), 1), 5: 2})
    assert names <= {f"kvcq-handler-{at}" for at in range(4)}
    assert await client.receive("jobs", group="g") == []


async def test_a_handler_that_ends_its_thread_has_ended(
    served: Served, client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    await put(client, 1)
    await client.create_group("g", backoff_ms=[0])

    def work(_: Delivery) -> None:
        sys.exit(3)

    def run() -> None:
        with Client(served.target) as blocking:
            blocking.receiver("jobs", group="g").run(work)

    with pytest.raises(SystemExit):
        await asyncio.to_thread(run)
    assert "did not end" not in caplog.text
    (again,) = await client.receive("jobs", group="g", wait_s=5)
    assert again.deliveries == 2


async def test_a_run_that_is_cancelled_does_not_say_that_it_waited(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    await put(client, 1)
    begun = asyncio.Event()

    async def work(_: Delivery) -> None:
        begun.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(client.receiver("jobs", group="g").run(work))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert "did not end" not in caplog.text


async def test_a_coroutine_function_is_refused_by_threads(served: Served) -> None:
    async def work(_: Delivery) -> None: ...

    def run() -> None:
        with Client(served.target) as blocking, blocking.receiver("jobs", group="g") as receiver:
            with pytest.raises(TypeError, match="coroutine function"):
                receiver.run(work)
            for wrong in ({"concurrency": 0}, {"stop_timeout_s": -1}, {"concurrency": "4"}):
                with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
                    receiver.run(print, **wrong)

    await asyncio.to_thread(run)


_WORKER = """
import asyncio, signal, sys, time
from kvcq_client import AsyncClient, Client

target, kind = sys.argv[1:]

def say(what, delivery):
    sys.stdout.write(f"{what} {delivery.body.decode()}\\n")
    sys.stdout.flush()

def work(delivery):
    say("begun", delivery)
    time.sleep(0.5)
    say("ended", delivery)

async def work_in_loop(delivery):
    say("begun", delivery)
    await asyncio.sleep(0.5)
    say("ended", delivery)

async def main():
    async with AsyncClient(target) as client:
        if kind == "loop":
            await client.receiver("jobs", group="g").run(work_in_loop, concurrency=2)
        else:
            runs = [client.receiver("jobs", group="g").run(work_in_loop) for _ in range(2)]
            await asyncio.gather(*runs)

if kind == "threads":
    with Client(target) as client:
        client.receiver("jobs", group="g").run(work, concurrency=2)
elif kind == "other thread":  # no signal ends the main thread's wait
    with Client(target) as client:
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
        client.receiver("jobs", group="g").run(work, concurrency=2)
else:
    asyncio.run(main())
print("left", flush=True)
"""


@pytest.mark.parametrize(
    ("which", "kind"),
    [
        (signal.SIGTERM, "other thread"),
        (signal.SIGINT, "loop"),
        (signal.SIGTERM, "two runs in a loop"),
        pytest.param(signal.SIGTERM, "threads", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, "loop", marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, "threads", marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, "other thread", marks=pytest.mark.slow),
    ],
)
async def test_a_signal_ends_it_in_order(
    served: Served, client: AsyncClient, kind: str, which: signal.Signals
) -> None:
    await put(client, 20)

    def work() -> tuple[int, list[str]]:
        command = [sys.executable, "-c", _WORKER, served.target, kind]
        with child_process(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(2)]
            process.send_signal(which)
            lines += process.stdout.readlines()
            return process.wait(30), [line.strip() for line in lines]

    code, lines = await asyncio.to_thread(work)
    assert (code, lines[-1]) == (0, "left")
    begun = {line.split()[1] for line in lines[:-1] if line.startswith("begun")}
    ended = {line.split()[1] for line in lines[:-1] if line.startswith("ended")}
    assert begun == ended, "what ran is finished"
    left: set[str] = set()
    while len(left) < 20 - len(ended):  # at once, not when their time is over
        received = await client.receive("jobs", group="g", max_messages=100, wait_s=5)
        left |= {one.message.body.decode() for one in received}
    assert not left & ended


_READER = """
import asyncio, sys
from kvcq_client import AsyncClient, Client

target, kind = sys.argv[1:]

def say(*words):
    print(*words, flush=True)

async def main():
    async with AsyncClient(target) as client, client.receiver("jobs", group="g") as receiver:
        async for delivery in receiver:
            say("has", delivery.body.decode())

if kind == "loop":
    asyncio.run(main())
elif kind == "iterator":
    with Client(target) as client, client.receiver("jobs", group="g") as receiver:
        for delivery in receiver:
            say("has", delivery.body.decode())
else:
    with Client(target) as client:
        for one in client.receive("jobs", group="g"):
            client.give_back("g", [one], 0.0)
            say("has", one.message.body.decode())
        client.receive("jobs", group="none", wait_s=60)
"""


@pytest.mark.parametrize("kind", ["loop", "iterator", "call"])
async def test_ctrl_c_gives_back_what_a_reader_has(
    served: Served, client: AsyncClient, kind: str
) -> None:
    """At once, and the process ends by the interrupt."""
    await put(client, 20)

    def read() -> tuple[int, str]:
        command = [sys.executable, "-c", _READER, served.target, kind]
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with child_process(command, cwd=ROOT, text=True, **piped) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            for _ in range(20):
                process.stdout.readline()
            process.send_signal(signal.SIGINT)
            return process.wait(30), process.stderr.read()

    code, said = await asyncio.to_thread(read)
    assert code == -signal.SIGINT
    assert said.rstrip().endswith("KeyboardInterrupt")
    left: set[str] = set()
    while len(left) < 20:
        received = await client.receive("jobs", group="g", max_messages=100, wait_s=5)
        assert received, "not when their time is over"
        left |= {one.message.body.decode() for one in received}
