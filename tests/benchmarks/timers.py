"""`python -m tests.benchmarks.timers DIRECTORY`: delayed messages by the million, embedded.

What is told, a line each: what those that wait take on disk and in memory; how late messages are
that come due while many others wait; how many are put a second after a stop, with the bound on that
and without it; how long a put takes beside it. DIRECTORY is removed first. Bodies have 100 bytes.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kvcq.opening import open_store
from server.process import private_bytes
from store.config import StoreConfig
from store.format import unpack_record
from store.held import firing
from store.message import Message

if TYPE_CHECKING:
    from store.message_store import MessageStore

_TOGETHER = 1024
_BODY = bytes(100)
_QUEUES = 16
_LATE_S = 20
_A_SECOND = 1000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.timers", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--pending", type=int, default=10_000_000)
    parser.add_argument("--due", type=int, default=300_000, help="that are due after a stop")
    options = parser.parse_args()
    shutil.rmtree(options.directory, ignore_errors=True)
    with _open(options.directory) as store:
        before = private_bytes()
        began = time.perf_counter()
        _fill(store, options.pending)
        took_s = time.perf_counter() - began
        tell("put", f"{options.pending / took_s:,.0f} delayed messages/s, 1,024 a put")
        store.flush()
        tell("memory", f"{(private_bytes() - before) / 1e6:,.0f} MB more than the empty store")
        _tell_late(store)
    with _open(options.directory) as store:
        tell("memory, opened again", f"{(private_bytes() - before) / 1e6:,.0f} MB more")
        store.maintenance.compact(lambda _share: None)
        tell("disk", f"{_bytes_of(options.directory / 'kvcq') / 1e6:,.0f} MB of database")
        pending = store.timers.count()
        tell("waiting", f"{pending:,}")
        # Due in a second, while the store is closed.
        due = time.time_ns() // 1_000_000 + 1000 + options.due // 20
        for first in range(0, options.due, _TOGETHER):
            count = min(_TOGETHER, options.due - first)
            store.timers.put([_message("burst")] * count, [due] * count)
    time.sleep(max(0.0, due / 1000 - time.time()))
    with _open(options.directory) as store:
        _tell_burst(store, options.due, "after a stop")
        firing.MOST_A_SECOND = 1 << 30
        due = time.time_ns() // 1_000_000 + 1000 + options.due // 20
        for first in range(0, options.due, _TOGETHER):
            count = min(_TOGETHER, options.due - first)
            store.timers.put([_message("burst")] * count, [due] * count)
        time.sleep(max(0.0, due / 1000 - time.time()))
        _tell_burst(store, options.due, "without the bound")


def tell(what: str, figure: str) -> None:
    sys.stdout.write(f"{what}: {figure}\n")
    sys.stdout.flush()


def _open(directory: Path) -> MessageStore:
    return open_store(StoreConfig(root=directory))


def _message(topic: str) -> Message:
    return Message(topic, _BODY, random.randrange(_QUEUES) % 4)


def _fill(store: MessageStore, pending: int) -> None:
    """Due between one and thirty days from now on, in no order."""
    now_ms = time.time_ns() // 1_000_000
    day_ms = 24 * 3_600_000
    for first in range(0, pending, _TOGETHER):
        count = min(_TOGETHER, pending - first)
        due = [now_ms + random.randrange(day_ms, 30 * day_ms) for _ in range(count)]
        store.timers.put([_message("far")] * count, due)


def _tell_late(store: MessageStore) -> None:
    """A thousand come due each second, for some seconds."""
    for _ in range(_LATE_S * 20):
        begin = time.perf_counter()
        now_ms = time.time_ns() // 1_000_000
        due = [now_ms + 2000 + random.randrange(50) for _ in range(_A_SECOND // 20)]
        store.timers.put([_message("late")] * len(due), due)
        time.sleep(max(0.0, begin + 0.05 - time.perf_counter()))
    time.sleep(3)
    late: list[int] = []
    for queue_id in range(4):
        at, end = store.bounds([("late", queue_id)])[0]
        while at < end:
            pulled = store.pull("late", queue_id, at, max_messages=1000)
            for record in pulled.records:
                message = unpack_record(record)
                late.append(message.store_time_ms - int(message.properties["TIMER_DELIVER_MS"]))
            at = pulled.next_offset
    late.sort()
    tell(
        f"late, {_A_SECOND:,} a second",
        f"p50 {late[len(late) // 2]} ms, p99 {late[len(late) * 99 // 100]} ms, most {late[-1]} ms, "
        f"of {len(late):,}",
    )


def _tell_burst(store: MessageStore, due: int, how: str) -> None:
    """How fast they go, and what a put takes beside it."""
    stopped = threading.Event()
    took_ms: list[float] = []

    def put() -> None:
        while not stopped.wait(0.005):
            begin = time.perf_counter()
            store.put([Message("beside", _BODY)])
            took_ms.append((time.perf_counter() - begin) * 1000)

    fired, began = store.timers.firing.fired, time.perf_counter()
    thread = threading.Thread(target=put)
    thread.start()
    while store.timers.firing.statistics()["store.timers_late_s"] or not took_ms:
        time.sleep(0.05)
    took_s = time.perf_counter() - began
    stopped.set()
    thread.join()
    took_ms.sort()
    count = store.timers.firing.fired - fired
    tell(
        how,
        f"{count:,} of {due:,} put in {took_s:.1f} s, {count / took_s:,.0f} a second; "
        f"a put beside it: p99 {took_ms[len(took_ms) * 99 // 100]:.1f} ms",
    )


def _bytes_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
