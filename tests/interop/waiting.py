"""What waits goes from the released broker to us, back to it, and to us again: each comes once."""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

from migration.opening import open_any
from migration.plan import plan_directory
from migration.release import Home, release
from migration.steps.adopting import adopt
from store.base import SystemClock, no_progress
from store.format import unpack_record
from tests.support.broker_store import LAYOUT, SEGMENT_BYTES
from tests.support.fake_clock import FakeClock
from tests.support.migrating import config

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore
    from tests.interop.broker_judge import BrokerJudge

#: What the broker delivered before it was stopped, and what waits then.
DELIVERED = ("level-done", "timer-done", "half-committed")
WAITING = ("level-waits", "level-waits-long", "timer-waits", "timer-waits-days")
HALF = "half-open"
_DAYS_S = 60 * 3600


def bodies(store: MessageStore) -> Counter[str]:
    """Of the topic that all of it is for."""
    pulled = store.pull("orders", 1, 0, max_messages=100)
    return Counter(unpack_record(each).body.decode() for each in pulled.records)


def check_waiting(judge: BrokerJudge, root: Path) -> None:
    """Raises AssertionError."""
    judge.wait(root)
    found = plan_directory(root, LAYOUT, no_progress).held_back
    assert [each.waiting for each in found] == [2, 2, 1], found
    adopt(root, layout=LAYOUT)
    alone = root.with_name(f"{root.name}-alone")
    shutil.copytree(root, alone)
    assert _all_delivered(alone) == Counter((*DELIVERED, *WAITING, HALF))

    with closing(open_any(config(root, segment_bytes=SEGMENT_BYTES)).store) as store:
        # What is due by now is delivered here, the rest by whoever has it then.
        while store.timers.firing.fire():
            pass
        before = bodies(store)
        assert before.keys() - WAITING == set(DELIVERED)
    release(root, home=Home.FILES)
    answer = judge.deliver(root, 10)
    assert answer["asked"] == [HALF], answer
    came = Counter(answer["bodies"])
    assert came >= before, (came, before)
    assert max(came.values()) == 1, came
    adopt(root, layout=LAYOUT)
    assert _all_delivered(root) == Counter((*DELIVERED, *WAITING, HALF))


def _all_delivered(root: Path) -> Counter[str]:
    """What is in the topic once everything was due, and every transaction committed."""
    clock = FakeClock(SystemClock().now_ms())
    with closing(open_any(config(root, segment_bytes=SEGMENT_BYTES), clock=clock).store) as store:
        clock.advance(_DAYS_S)
        while store.timers.firing.fire():
            pass
        for each in store.halves.list()[0]:
            store.halves.end(each.transaction_id, commit=True)
        return bodies(store)
