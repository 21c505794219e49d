"""A process that works on a group in order until it kills itself at a named point.

Run as `python -m tests.crash.ordered_child ROOT POINT COUNT`; see putting_child.py. It tells on
standard output, one JSON line each, what was answered: ["put", texts], ["received", texts],
["acknowledged", texts]; and ["not answered", texts] before these are acknowledged. A text is the
ordering key and the message's number within it.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from store.format import SHARDING_KEY
from store.format.record import unpack_record
from store.message import Message
from store.metadata import SharedGroup
from tests.crash.putting_child import kill_at
from tests.crash.receiving_child import GROUP, TOPIC, tell
from tests.support.fake_clock import FakeClock
from tests.support.stores import open_small

SETTINGS = SharedGroup(in_order=True, invisible_ms=1000)
KEYS = ("a", "b", "c", "d", "e")


def main() -> None:
    root, point, count = sys.argv[1:]
    clock, chance = FakeClock(), random.Random(int(count))
    with open_small(Path(root), clock) as store:
        store.groups.create(GROUP, SETTINGS)
        tell("put", [])
        kill_at(point, int(count))
        for number in range(400):
            texts = [f"{key}-{number}" for key in KEYS]
            store.put(
                [
                    Message(
                        TOPIC,
                        text.encode().ljust(700),
                        ord(text[0]) % 2,
                        properties={SHARDING_KEY: text[0]},
                    )
                    for text in texts
                ]
            )
            tell("put", texts)
            for _ in range(2):
                found = store.groups.receive(GROUP, TOPIC, max_messages=4).deliveries
                got = [unpack_record(each.record).body.decode().strip() for each in found]
                tell("received", got)
                fine = [at for at in range(len(got)) if chance.random() < 0.8]
                if fine:
                    tell("not answered", [got[at] for at in fine])
                    store.groups.acknowledge(GROUP, [found[at].handle for at in fine])
                    tell("acknowledged", [got[at] for at in fine])
                left = [found[at].handle for at in range(len(got)) if at not in fine]
                if left and chance.random() < 0.5:
                    store.groups.give_back(GROUP, left, 0)
            if number % 3 == 2:
                clock.advance(2)
            if number % 20 == 10:
                store.flush()


if __name__ == "__main__":
    main()
