"""A process that puts, receives and acknowledges until it kills itself at a named point.

Run as `python -m tests.crash.receiving_child ROOT MODE POINT COUNT`; see putting_child.py. It tells
on standard output, one JSON line each, what was answered: ["put", texts], ["received", texts],
["acknowledged", texts]; and ["not answered", texts] before these are acknowledged, ["redrive", []]
before all dead letters are put again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from store.config import FlushMode
from store.format.record import unpack_record
from store.groups import Outcome
from store.message import Message
from store.metadata import SharedGroup
from tests.crash.putting_child import kill_at
from tests.support.fake_clock import FakeClock
from tests.support.stores import open_small

GROUP, TOPIC, LIGHT = "g", "T", "%LMQ%l"
SETTINGS = SharedGroup(max_deliveries=2, invisible_ms=1000)


def tell(what: str, texts: list[str]) -> None:
    print(json.dumps([what, texts]), flush=True)  # noqa: T201


def main() -> None:
    root, mode, point, count = sys.argv[1:]
    clock = FakeClock()
    with open_small(Path(root), clock, flush_mode=FlushMode(mode)) as store:
        store.groups.create(GROUP, SETTINGS)
        tell("put", [])
        kill_at(point, int(count))
        for number in range(400):
            texts = [f"{number}-{each}" for each in range(8)]
            store.put(
                [
                    Message(TOPIC, text.encode().ljust(700), at % 2, light_queues=(LIGHT,))
                    for at, text in enumerate(texts)
                ]
            )
            tell("put", texts)
            for topic in (TOPIC, LIGHT):
                found = store.groups.receive(GROUP, topic, max_messages=10).deliveries
                prefix = "light " if topic == LIGHT else ""
                got = [prefix + unpack_record(each.record).body.decode().strip() for each in found]
                tell("received", got)
                # Every fifth is poison: nobody acknowledges it.
                fine = [at for at, text in enumerate(got) if int(text.rpartition("-")[2]) != 5]
                if fine:
                    handles = [found[at].handle for at in fine]
                    tell("not answered", [got[at] for at in fine])
                    outcomes = store.groups.acknowledge(GROUP, handles).outcomes
                    assert set(outcomes) == {Outcome.DONE}
                    tell("acknowledged", [got[at] for at in fine])
            if number % 3 == 2:
                clock.advance(1)
            if number % 20 == 10:
                store.flush()
            if number % 30 == 25:
                tell("redrive", [])
                store.groups.redrive(GROUP)


if __name__ == "__main__":
    main()
