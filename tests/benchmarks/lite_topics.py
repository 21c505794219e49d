"""`python -m tests.benchmarks.lite_topics DIRECTORY`: lite topics by the million, embedded.

What is told, a line each: what lite topics take on disk, and subscriptions to some of them in
memory; how soon the first message of a new lite topic is received by a client of a wildcard group,
one after another; what it takes to end idle lite topics, and the memory meanwhile. DIRECTORY is
removed first. Bodies have 100 bytes.
"""

from __future__ import annotations

import argparse
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
from store.lite import Action, queue_of
from store.message import Message
from store.metadata import LiteGroup, SharedGroup

if TYPE_CHECKING:
    from store.message_store import MessageStore

_PARENT = "sessions"
_BODY = bytes(100)
_TOGETHER = 1000
_QUOTA = 10_000
_FIRST_MESSAGES = 500
_HOUR_MS = 3_600_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.lite_topics")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--lite-topics", type=int, default=10_000_000)
    parser.add_argument("--subscribed", type=int, default=1_000_000)
    parser.add_argument("--ended", type=int, default=1_000_000, help="by the scan of idle ones")
    options = parser.parse_args()
    shutil.rmtree(options.directory, ignore_errors=True)
    with open_store(StoreConfig(root=options.directory)) as store:
        before = private_bytes()
        store.lite.make(_PARENT)
        _fill(store, options.lite_topics)
        store.flush()
        tell("memory", f"{(private_bytes() - before) / 1e6:,.0f} MB more than the empty store")
        store.maintenance.compact(lambda _share: None)
        size = sum(path.stat().st_size for path in (options.directory / "kvcq").rglob("*.sst"))
        tell(
            "disk", f"{size / 1e6:,.0f} MB of database, {size / options.lite_topics:.0f} bytes each"
        )
        _subscribe(store, options.subscribed)
        _tell_first_messages(store)
        tell("memory in all", f"{private_bytes() / 1e6:,.0f} MB")
        _end(store, options.ended)


def tell(what: str, figure: str) -> None:
    sys.stdout.write(f"{what}: {figure}\n")
    sys.stdout.flush()


def _fill(store: MessageStore, count: int) -> None:
    began = time.perf_counter()
    for first in range(0, count, _TOGETHER):
        names = range(first, min(first + _TOGETHER, count))
        store.put(
            [
                Message(_PARENT, _BODY, number % 4, light_queues=(queue_of(_PARENT, f"s{number}"),))
                for number in names
            ]
        )
    tell("put", f"{count / (time.perf_counter() - began):,.0f} new lite topics/s, 1,000 a put")


def _subscribe(store: MessageStore, count: int) -> None:
    lite = LiteGroup(_PARENT, client_quota=_QUOTA)
    store.groups.create("named", SharedGroup(lite=lite))
    before, began = private_bytes(), time.perf_counter()
    for first in range(0, count, _QUOTA):
        names = [f"s{number}" for number in range(first, min(first + _QUOTA, count))]
        store.lite.sync("named", f"c{first}", Action.COMPLETE, names)
    took_s = time.perf_counter() - began
    grown = private_bytes() - before
    tell(
        "subscribed",
        f"{store.lite.subscriptions.subscribed:,} in {took_s:.1f} s, {grown / 1e6:,.0f} MB, "
        f"{grown / count:.0f} bytes each",
    )


def _tell_first_messages(store: MessageStore) -> None:
    """Each is received before the next one is put. The group begins with what there is."""
    lite = LiteGroup(_PARENT, is_wildcard=True)
    store.groups.create("wild", SharedGroup(lite=lite, from_latest=True))
    store.lite.sync("wild", "w", Action.COMPLETE)
    came = threading.Event()
    store.lite.subscriptions.add_listener(lambda group, _: came.set() if group == "wild" else None)
    began = time.perf_counter()
    _receive(store)
    group = store.lite.subscriptions._groups["wild"]
    while group.pass_after is not None or len(group.ready):
        _receive(store)
    tell("pass over all", f"{time.perf_counter() - began:.1f} s")
    took_ms: list[float] = []
    for number in range(_FIRST_MESSAGES):
        name = f"new{number}"
        put = time.perf_counter()
        came.clear()
        body = name.encode()
        store.put([Message(_PARENT, body, 0, light_queues=(queue_of(_PARENT, name),))])
        while body not in _receive(store):
            came.wait(1)
            came.clear()
        took_ms.append((time.perf_counter() - put) * 1000)
    took_ms.sort()
    tell(
        "first message, wildcard",
        f"p50 {took_ms[len(took_ms) // 2]:.1f} ms, p99 {took_ms[len(took_ms) * 99 // 100]:.1f} ms",
    )


def _receive(store: MessageStore) -> list[bytes]:
    found = store.lite.receive("wild", "w", max_messages=1000).deliveries
    if found:
        store.groups.acknowledge("wild", [each.handle for each in found])
    return [bytes(unpack_record(each.record).body) for each in found]


def _end(store: MessageStore, count: int) -> None:
    """The scan ends those that are idle; none is subscribed to any more."""
    for first in range(0, count, _QUOTA):
        store.lite.sync("named", f"c{first}", Action.LEAVE)
    store.lite.make(_PARENT, _HOUR_MS)
    expiry = store.lite.expiry
    now_ms = expiry._now_ms
    before, most, began = private_bytes(), 0, time.perf_counter()
    expiry._now_ms = lambda: now_ms() + 2 * _HOUR_MS
    while expiry.expired < count:  # the store's own job does it
        time.sleep(0.1)
        most = max(most, private_bytes() - before)
    took_s = time.perf_counter() - began
    tell(
        "ended",
        f"{expiry.expired:,} in {took_s:.1f} s, {expiry.expired / took_s:,.0f}/s; "
        f"memory meanwhile {most / 1e6:,.0f} MB more at most",
    )


if __name__ == "__main__":
    main()
