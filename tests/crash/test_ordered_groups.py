"""Groups in order over losses of power: each message group goes on where it was, one at a time."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from migration.check import check_store
from store.config import FlushMode
from store.format.record import unpack_record
from store.groups import Outcome
from store.message import Message
from store.metadata import SharedGroup
from tests.crash.images import power_loss
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import differences
from tests.support.seeds import seeds
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

    from store.groups import Delivery

pytestmark = pytest.mark.crash

GROUP, QUEUES = "g", 2
SETTINGS = SharedGroup(in_order=True, invisible_ms=1000, most_in_flight=9)
#: A queue and an ordering key, and the message's number among those of it.
Name = tuple[str, int]


def name_of(delivery: Delivery) -> Name:
    key, _, number = unpack_record(delivery.record).body.decode().strip().rpartition(" ")
    return key, int(number)


@pytest.mark.parametrize("seed", seeds(2, 12))
def test_a_loss_of_power_leaves_every_message_group_in_order(tmp_path: Path, seed: int) -> None:
    chance, clock = random.Random(seed), FakeClock()
    image = tmp_path / "image"
    put: dict[str, int] = defaultdict(int)
    done: dict[str, list[int]] = defaultdict(list)
    maybe: set[Name] = set()
    with open_small(tmp_path / "store", clock, flush_mode=FlushMode.SYNC) as store:
        store.groups.create(GROUP, SETTINGS)
        store.create_topics([("T", QUEUES)])
        held: list[Delivery] = []
        for _ in range(chance.choice((5, 30, 60))):
            messages = []
            for _ in range(chance.randrange(1, 9)):
                queue_id, key = chance.randrange(QUEUES), chance.choice(("", "a", "b", "c"))
                name = f"{queue_id}{key}"
                body = f"{name} {put[name]}".ljust(chance.choice((20, 2000))).encode()
                put[name] += 1
                properties = {"__SHARDINGKEY": key} if key else {}
                messages.append(Message("T", body, queue_id, properties=properties))
            store.put(messages)
            held += store.groups.receive(GROUP, "T", max_messages=chance.randrange(1, 9)).deliveries
            chance.shuffle(held)
            some, held = held[:3], held[3:]
            if some and chance.random() < 0.2:
                store.groups.give_back(GROUP, [each.handle for each in some], 500)
            elif some:
                outcomes = store.groups.acknowledge(GROUP, [each.handle for each in some]).outcomes
                for each, outcome in zip(some, outcomes, strict=True):
                    if outcome is Outcome.DONE:
                        key, number = name_of(each)
                        assert number == len(done[key]), "another one came first"
                        done[key].append(number)
            if chance.random() < 0.3:
                clock.advance(chance.choice((0.3, 1)))
            if chance.random() < 0.1:
                store.flush()
        # The last of these are in the log, and not durable: nobody waits for them.
        store.groups.receive(GROUP, "T", max_messages=3)
        if held and chance.random() < 0.5:
            last = store.groups.acknowledge(GROUP, [held[0].handle], wait=False)
            if last.outcomes == [Outcome.DONE]:
                maybe.add(name_of(held[0]))
        power_loss(store, image, chance)
    later = FakeClock(clock.now_ms() + 10_000_000)
    with open_small(image, later, flush_mode=FlushMode.SYNC) as store:
        assert differences(store) == []
        later.advance(86_400)  # at once no lease would be freed by a clock that jumped
        while True:
            received = store.groups.receive(GROUP, "T", max_messages=chance.randrange(1, 30))
            found = received.deliveries
            if not found and received.next_look_ms is None:
                break
            names = [name_of(each) for each in found]
            assert len({key for key, _ in names}) == len(names), "one at a time"
            for key, number in names:
                if (key, len(done[key])) in maybe and number == len(done[key]) + 1:
                    done[key].append(number - 1)
                assert number == len(done[key])
                done[key].append(number)
            if found:
                store.groups.acknowledge(GROUP, [each.handle for each in found])
        for key, count in put.items():
            left = [number for number in range(len(done[key]), count) if (key, number) not in maybe]
            assert left == []
        assert differences(store) == []
    assert check_store(image) == []
