"""A process that puts messages until it kills itself at a named point.

Run as `python -m tests.crash.putting_child ROOT MODE POINT COUNT`. Every acknowledged message is
told on standard output, one JSON line each, before the next put begins. A point is a function of
the store; the process gets SIGKILL when it is entered for the COUNTth time.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from store.config import FlushMode
from store.errors import TopicExistsError, UnknownTopicError
from store.message import Message
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.message_store import MessageStore

#: Name of a point to module, class (or none) and function.
POINTS = {
    "after append": ("store.derive.reput", "ReputService", "dispatch_or_queue"),
    "in append": ("store.log.segment", "Segment", "append"),
    "at roll": ("store.log.segment_set", "SegmentSet", "roll"),
    "new segment": ("store.log.segment", "Segment", "create"),
    "before fsync": ("os", None, "fdatasync"),
    "in dispatch": ("kvcq.engine.rocks", "RocksEngine", "write"),
    "in flush of queues": ("kvcq.engine.rocks", "RocksEngine", "flush"),
    "in checkpoint": ("store.upkeep.checkpoints", None, "write_checkpoint"),
    "in deletion": ("kvcq.consume_queue_store", "KvConsumeQueueStore", "delete_topic"),
    "after deletion": ("store.topics.remembered", "DeadNames", "changed"),
    "behind a record of state": ("store.puts.append_path", "AppendPath", "_settle_state"),
    "before its rows": ("kvcq.state_store", "KvStateStore", "apply"),
    "before segments go": ("store.log.retention", "RetentionService", "_drop"),
    "as one goes": ("store.log.segment_set", "SegmentSet", "drop_first"),
    "in rolling": ("store.held.rolling", "Rolling", "_keep"),
    "in snapshot": ("kvcq.snapshots.snapshot", "Snapshot", "write"),
    "before the seal": ("kvcq.snapshots.snapshot", "Snapshot", "seal"),
    "as one is removed": ("kvcq.snapshots.snapshot", "Snapshot", "remove_copy"),
}


def kill_at(point: str, count: int) -> None:
    """Replace the function of the point by one that counts, then kills."""
    module_name, class_name, name = POINTS[point]
    owner = importlib.import_module(module_name)
    if class_name is not None:
        owner = getattr(owner, class_name)
    original: Callable[..., object] = getattr(owner, name)
    left = [count]

    def counted(*arguments: object, **named: object) -> object:
        left[0] -= 1
        if left[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **named)

    setattr(owner, name, counted)


def main() -> None:
    root, mode, point, count = sys.argv[1:]
    with open_small(Path(root), flush_mode=FlushMode(mode)) as store:
        kill_at(point, int(count))
        for number in range(400):
            messages = [
                Message(
                    f"T{each % 2}",
                    json.dumps([number, each]).encode().ljust(700),
                    queue_id=each % 3,
                    keys=(f"k{number}",),
                    light_queues=("%LMQ%a",) if each == 0 else (),
                )
                for each in range(4)
            ]
            done = store.put(messages)
            places = [
                [message.topic, *placed[:3]]
                for message, placed in zip(messages, done.placed, strict=True)
            ]
            print(json.dumps(["put", number, places]), flush=True)  # noqa: T201
            if number % 20 == 10:
                store.put([Message("gone", b"x" * 500, light_queues=("%LMQ%a",))])
                print(json.dumps(["light"]), flush=True)  # noqa: T201
                store.delete_topic("gone")
                print(json.dumps(["deleted"]), flush=True)  # noqa: T201
            if number % 25 == 20:
                store.flush()
            if number % 30 == 29:
                store.snapshots.take()
                store.snapshots.look()
            administer(store, number)


def administer(store: MessageStore, number: int) -> None:
    """One change of topics, groups or offsets: told before, and when it is acknowledged."""
    name, group = f"made-{number % 7}", f"g{number % 3}"
    change: list[object]
    call: Callable[[], object]
    match number % 5:
        case 0:
            change = ["make", name, number % 4 + 1]
            call = partial(store.create_topics, [(name, number % 4 + 1)])
        case 1:
            change = ["keep", "T0", number]
            call = partial(store.keep, "T0", messages=1_000_000 + number)
        case 2 | 3:
            change = ["commit", group, "T0", 0, number]
            call = partial(store.commit_offsets, group, [("T0", 0, number)], allow_back=True)
        case _ if number % 2:
            change = ["end group", group]
            call = partial(store.delete_group, group)
        case _:
            change = ["end", name]
            call = partial(store.delete_topic, name)
    print(json.dumps(["begun", *change]), flush=True)  # noqa: T201
    try:
        call()
    except (UnknownTopicError, TopicExistsError):
        print(json.dumps(["refused"]), flush=True)  # noqa: T201
    else:
        print(json.dumps(["done"]), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
