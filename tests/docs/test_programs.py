"""Programs on pages of docs/: they run as they are printed, also through kills."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

import pytest

from kvcq_client import Client, Message, Queue
from tests.docs.pages import blocks, read
from tests.support.command_line import answer_of
from tests.support.free_port import free_port
from tests.support.server_process import ServerProcess
from tests.support.until import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.integration


def programs(page: str, directory: Path, target: str) -> dict[str, Path]:
    """The Python of the page, each in the file that its docstring names."""
    found = {}
    for number, block in enumerate(blocks(read(page), "python")):
        named = re.match(r'"""(\w+\.py)', block)
        path = directory / (named[1] if named else f"{number}.py")
        path.write_text(block.replace("127.0.0.1:8081", target))
        found[path.name] = path
    return found


@contextmanager
def running(
    program: Path, *arguments: object, out: BinaryIO | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Killed at the end of the block."""
    command = [sys.executable, str(program), *map(str, arguments)]
    with subprocess.Popen(command, cwd=program.parent, stdout=out) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.crash
@pytest.mark.slow
def test_three_workers_share_a_topic_through_a_kill_and_a_fault(tmp_path: Path) -> None:
    """One is killed in the middle of a message, one raises always; poison is redriven."""
    with ServerProcess(tmp_path / "store") as server:
        server.wait_for("ready")
        worker = programs("docs/work-queues.md", tmp_path, server.target)["worker.py"]
        broken = tmp_path / "broken.py"
        broken.write_text(worker.read_text().replace('startswith(b"bad")', 'startswith(b"")'))
        hangs = tmp_path / "hangs.py"
        hangs.write_text(
            worker.read_text().replace("    print(", "    import time; time.sleep(600)\n    print(")
        )
        mended = tmp_path / "mended.py"
        mended.write_text(worker.read_text().replace('startswith(b"bad")', 'startswith(b"no")'))
        done = tmp_path / "done"
        with Client(server.target) as client:
            client.create_group(
                "workers", max_deliveries=4, backoff_ms=[100, 500], invisible_ms=2000
            )
            bodies = [b"bad" if number == 77 else b"%d" % number for number in range(300)]
            with client.producer() as producer:
                for body in bodies:
                    producer.send("jobs", body)

            def in_flight() -> int:
                return sum(queue.in_flight for queue in client.describe_group("workers").queues)

            def lag() -> int:
                return sum(queue.lag for queue in client.describe_group("workers").queues)

            with done.open("ab") as out:
                with running(hangs, out=out) as killed:
                    wait_until(lambda: in_flight() > 0)
                    killed.kill()
                with running(worker, out=out), running(broken, out=out):
                    wait_until(lambda: lag() == 0)
                dead = client.describe_group("workers").dead_letters
                assert dead >= 1
                first = _done(done)
                assert len({*first}) + dead >= 300, "each is done, or a dead letter"
                assert "bad" not in first
                listed = answer_of("dlq", "list", "workers", "--limit", 300, server=server.target)
                assert len(listed) == dead
                redriven = answer_of("dlq", "redrive", "workers", server=server.target)
                assert redriven == {"redriven": dead, "left": 0}
                with running(mended, out=out):
                    wait_until(lambda: lag() == 0)
            assert {*_done(done)} == {body.decode() for body in bodies}
            assert client.describe_group("workers").dead_letters == 0


def _done(path: Path) -> list[str]:
    """Bodies of the jobs that the workers have done. Threads print into each other's lines."""
    return re.findall(r"done (\d+|bad)", path.read_text())


@pytest.mark.crash
@pytest.mark.slow
def test_each_amount_counts_once_through_kills_of_its_workers(tmp_path: Path) -> None:
    books = tmp_path / "books.db"
    with ServerProcess(tmp_path / "store") as server:
        server.wait_for("ready")
        once = programs("docs/work-queues.md", tmp_path, server.target)["once.py"]
        with Client(server.target) as client:
            client.create_group("books", invisible_ms=1000)
            with client.producer() as producer:
                for number in range(400):
                    producer.send("amounts", b"%d" % number)

            def counted() -> int:
                return _one(books, "SELECT count(*) FROM done")

            for turn in range(4):
                with running(once, books):
                    wait_until(partial(_is_past, counted, turn * 80))
            with running(once, books):
                wait_until(lambda: counted() == 400)
                wait_until(lambda: sum(q.lag for q in client.describe_group("books").queues) == 0)
    assert _one(books, "SELECT amount FROM total") == sum(range(400))


def test_chat_runs_as_it_is_printed(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "store") as server:
        server.wait_for("ready")
        [program] = programs("docs/chat.md", tmp_path, server.target).values()
        said = [
            subprocess.run(
                [sys.executable, str(program)], capture_output=True, text=True, check=True
            ).stdout.splitlines()
            for _ in range(2)
        ]
    alice = "%LMQ%inbox-alice"
    assert [line for line in said[0] if "alice" in line] == [
        f"{alice} 0 hello",
        f"{alice} 1 how are you?",
    ]
    assert [line for line in said[1] if "alice" in line] == [
        f"{alice} 2 hello",
        f"{alice} 3 how are you?",
    ], "the gateway continues behind what it has delivered"
    assert len([line for line in said[1] if line.startswith("carol:")]) == 4


@pytest.mark.crash
@pytest.mark.slow
def test_the_outbox_is_exact_through_kills_of_every_part(tmp_path: Path) -> None:
    port = free_port()
    target = f"127.0.0.1:{port}"
    found = programs("docs/outbox.md", tmp_path, target)
    shop, books = tmp_path / "shop.db", tmp_path / "books.db"

    def serve() -> ServerProcess:
        server = ServerProcess(tmp_path / "store", port=port)
        server.wait_for("ready")
        return server

    def sent() -> int:
        return _one(shop, "SELECT next_number FROM relay")

    def applied() -> int:
        return _one(books, "SELECT orders FROM total")

    [insert] = blocks(read("docs/outbox.md"), "sql")
    amounts = [number * 7 % 1000 + 1 for number in range(1200)]
    server = serve()
    try:
        with Client(target) as client:
            client.create_topics({"orders": 4})
        with running(found["relay.py"], shop):
            wait_until(lambda: _one(shop, "SELECT count(*) FROM relay") == 1)
        for turn in range(4):
            _orders(shop, insert, amounts[turn * 300 : (turn + 1) * 300], turn * 300)
            with running(found["relay.py"], shop), running(found["apply.py"], books):
                wait_until(partial(_is_past, sent, turn * 300))
                if turn % 2:
                    server.__exit__()
                    server = serve()
            # Both programs are killed now, wherever they are.
        with running(found["relay.py"], shop), running(found["apply.py"], books):
            wait_until(lambda: applied() >= len(amounts))
            wait_until(lambda: _one(shop, "SELECT count(*) FROM outbox") == 0)
        assert (applied(), sent()) == (len(amounts), len(amounts))
        assert _one(books, "SELECT amount FROM total") == sum(amounts)
        with Client(target) as client:
            ends = client.offsets([Queue("orders", queue) for queue in range(4)])
            assert sum(bounds.max_offset for bounds in ends.values()) == len(amounts)
            stored = client.stored_batch("shop-outbox", 0)
            assert stored is not None
            assert json.loads(stored.messages[0].body)["amount"] == amounts[0]
            # A second relay by mistake, on a copy of the database at its beginning.
            repeated = client.put_numbered(
                [
                    Message("orders", one.body, ordering_key=one.ordering_key)
                    for one in stored.messages
                ],
                producer_id="shop-outbox",
                sequence=0,
            )
            assert repeated
    finally:
        server.__exit__()


def _orders(shop: Path, insert: str, amounts: list[int], first: int) -> None:
    """The page's transaction for each order."""
    with closing(sqlite3.connect(shop, timeout=30, isolation_level=None)) as database:
        database.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER, amount INTEGER)")
        for number, amount in enumerate(amounts, first):
            text = insert.replace("17, 250", f"{number}, {amount}")
            text = text.replace(
                '"order": 17, "amount": 250', f'"order": {number}, "amount": {amount}'
            )
            database.executescript(text.replace("customer-7", f"customer-{number % 9}"))


def _is_past(count: Callable[[], int], low: int) -> bool:
    return count() > low


def _one(path: Path, query: str) -> int:
    """The number that the query gives; -1 while the program has not made its tables."""
    with closing(sqlite3.connect(path, timeout=30)) as database:
        try:
            [(found,)] = database.execute(query).fetchall()
        except (sqlite3.OperationalError, ValueError):
            return -1
    return int(found)


@pytest.mark.slow
def test_a_reminder_comes_at_its_time_and_a_recalled_one_does_not(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "store") as server:
        server.wait_for("ready")
        program = programs("docs/timers.md", tmp_path, server.target)["remind.py"]
        done = subprocess.run(
            [sys.executable, program], check=True, capture_output=True, text=True, timeout=60
        )
        assert done.stdout == "time for lunch\n"
        with Client(server.target) as client:
            assert client.delayed_pending() == 0


@pytest.mark.slow
def test_an_order_is_in_the_database_and_the_topic_or_in_neither(tmp_path: Path) -> None:
    """Also when the program was killed in the middle: the next one is asked."""
    with ServerProcess(tmp_path / "store") as server:
        server.wait_for("ready")
        program = programs("docs/transactions.md", tmp_path, server.target)["shop.py"]
        command = [sys.executable, str(program), str(tmp_path / "shop.db")]
        killed = subprocess.run(command, input="apple\ndie\n", text=True, timeout=60)
        assert killed.returncode == 1
        with Client(server.target) as client:
            assert len(client.open_transactions("shop")) == 1
            second = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
            assert second.stdin is not None
            second.stdin.write("pear\n")
            second.stdin.flush()
            wait_until(lambda: not client.open_transactions("shop"))
            second.stdin.close()
            assert second.wait(60) == 0
            found = [
                message.body
                for queue_id in range(client.describe_topic("orders").queue_count)
                for message in client.pull("orders", queue_id, 0).messages
            ]
        assert sorted(found) == [b"apple", b"pear"]
        assert _one(tmp_path / "shop.db", "SELECT count(*) FROM orders") == 2


@pytest.mark.slow
def test_a_conversation_goes_on_after_its_agent_was_killed(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "store") as server:
        server.wait_for("ready")
        found = programs("docs/sessions.md", tmp_path, server.target)

        def ask(session: str, question: str) -> str:
            return subprocess.run(
                [sys.executable, str(found["ask.py"]), session, question],
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
            ).stdout.strip()

        with Client(server.target) as client:
            with running(found["agent.py"]):  # it may not have created the parents yet
                assert ask("tea-1", "Which tea?") == "tea-1, turn 1: Which tea?"
                wait_until(lambda: not sum(q.lag for q in client.describe_group("agents").queues))
            with running(found["agent.py"]):
                assert ask("tea-1", "How long?") == "tea-1, turn 2: How long?"
                assert ask("tea-2", "Which tea?") == "tea-2, turn 1: Which tea?"
            assert list(client.list_lite_topics("questions")) == ["tea-1", "tea-2"]
            assert client.lite_expiry_s("questions") == 7 * 86_400


def test_a_message_is_traced_as_the_page_does(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "store") as server:
        server.wait_for("ready")
        (program,) = programs("docs/trace.md", tmp_path, server.target).values()
        done = subprocess.run(
            [sys.executable, str(program)], capture_output=True, text=True, timeout=60, check=True
        )
    assert done.stdout == "['delivered', 'acknowledged']\n"
