"""Stores given back to a broker, by each kind of release, for each kind of broker to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from migration.errors import IllegalStepError
from migration.jobs import Job
from migration.migrator import begin_on_rocksdb, open_migrator
from migration.release import Home, release
from migration.state import FileLayout, Phase
from migration.steps.adopting import adopt
from store.message import Message
from store.metadata import LiteGroup, MessageType, SharedGroup
from tests.support.broker_store import LAYOUT, SEGMENT_BYTES, extract_broker, found_by_broker
from tests.support.migrating import config, open_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.broker_judge import BrokerJudge

MADE = "made-here"
LIGHT = "%LMQ%device-1"
PARENT = "questions"
SHARED = {
    "paused": SharedGroup(3, is_paused=True, backoff_ms=(0, 0, 2000)),
    "in-order": SharedGroup(in_order=True),
    "lite": SharedGroup(17, in_order=True, lite=LiteGroup(PARENT, 7, is_exclusive=True)),
    "every": SharedGroup(17, in_order=True, lite=LiteGroup(PARENT, is_wildcard=True)),
}
#: A broker's delay before the first retry of a group without a backoff of its own.
FIRST_RETRY_MS = 10_000
#: Brokers that find a store on files, and one in RocksDB.
ON_FILES = ("files", "lmq")
ON_ROCKSDB = ("separate", "single")
_WAIT_S = 120.0


class Given(NamedTuple):
    """A store that was released."""

    root: Path
    expected: dict[str, Any]  # what a broker has to find
    layout: FileLayout = LAYOUT


def adopted(form: str, scratch: Path) -> Given:
    """A broker's store, released in the form that it came in, with a topic more and one less."""
    root = _taken_over(form, scratch)
    if form == "lmq":
        release(root, home=Home.FILES)
    else:
        _steps(root, "start", "verify")
        release(root, home=Home.ROCKSDB)
    return Given(root, _expected_of(form))


def moved_to_files(form: str, scratch: Path) -> Given:
    """A store of a broker with RocksDB, finished, rolled back, and released on files."""
    root = _taken_over(form, scratch)
    _steps(root, "start", "verify", "cutover", "finish", "rollback", "rollback", "rollback")
    with pytest.raises(IllegalStepError, match="storeType=default"):
        release(root)
    release(root, home=Home.FILES)
    return Given(root, _expected_of(form))


def made_here(home: Home, scratch: Path) -> Given:
    """A store that no broker ever had."""
    scratch.mkdir(parents=True, exist_ok=True)
    root = scratch / "made"
    with open_store(config(root, segment_bytes=SEGMENT_BYTES)) as store:
        store.create_topics([("orders", 4), (MADE, 3), ("empty", 2)])
        for number in range(600):
            store.put(
                [
                    Message(
                        topic="orders" if number % 3 else MADE,
                        body=b"body-%d" % number,
                        queue_id=number // 3 % 3,
                        keys=(f"k{number}",),
                        tag="even" if number % 2 else "odd",
                        light_queues=(LIGHT,) if number % 5 == 0 else (),
                    )
                ]
            )
        store.commit_offsets("billing", [("orders", 0, 14), (MADE, 2, 1), (LIGHT, 0, 5)])
        store.commit_offsets("fresh", [("orders", 1, 3)])
        store.take("empty", MessageType.FIFO)
        store.lite.make(PARENT, 90_000)
        for name, settings in SHARED.items():
            store.groups.create(name, settings)
        expected = {
            "topics": {"orders": 4, MADE: 3, "empty": 2},
            "offsets": {
                "orders@billing:0": 14,
                f"{MADE}@billing:2": 1,
                f"{LIGHT}@billing:0": 5,
                "orders@fresh:1": 3,
            },
            "bodies": _bodies_here(),
            "types": {"orders": "NORMAL -1", "empty": "FIFO -1", PARENT: "LITE 2"},
            "settings": {
                # Enabled, in order, retries, backoff; lite: parent, quota, exclusive, wildcard.
                "paused": [False, False, 2, 2000, "null", 2000, False, False],
                "in-order": [True, True, (1 << 31) - 2, FIRST_RETRY_MS, "null", 2000, False, False],
                "lite": [True, True, 16, FIRST_RETRY_MS, PARENT, 7, True, False],
                "every": [True, True, 16, FIRST_RETRY_MS, PARENT, 2000, False, True],
            },
        }
    begin_on_rocksdb(root)
    _steps(root, "rollback")
    if home is Home.FILES:
        _steps(root, "rollback", "rollback")
        release(root)  # no broker went by RocksDB, so nobody has to say it
    else:
        release(root, home=home)
    return Given(root, expected, FileLayout())


def compare_given_back(judge: BrokerJudge, given: Given, brokers: tuple[str, ...]) -> None:
    """Raises AssertionError when one of the brokers finds anything else."""
    for broker in brokers:
        found = judge.read(broker, given.root, given.layout)
        for part, expected in given.expected.items():
            there = found[part]
            if part in ("topics", "types", "settings"):  # every broker has some of its own
                there = {name: each for name, each in there.items() if name in expected}
            assert there == expected, (broker, part, found[part])


def _taken_over(form: str, scratch: Path) -> Path:
    scratch.mkdir(parents=True, exist_ok=True)
    root = extract_broker(scratch, form)
    adopt(root, layout=LAYOUT)
    with open_store(config(root, segment_bytes=SEGMENT_BYTES)) as store:
        store.create_topics([(MADE, 3)])
        store.delete_topic("empty")
        store.put([Message(topic=MADE, body=b"new", queue_id=2, keys=("k",), tag="t")])
        store.commit_offsets("billing", [("orders", 0, 14), (MADE, 2, 1)])
        store.commit_offsets("fresh", [(LIGHT, 0, 3)])
        store.delete_group("audit")
    return root


def _expected_of(form: str) -> dict[str, Any]:
    before = found_by_broker(form)
    topics = {name: count for name, count in before["topics"].items() if name in ("orders", "gone")}
    offsets = {name: at for name, at in before["offsets"].items() if "@audit:" not in name}
    return {
        "topics": {**topics, MADE: 3},
        "groups": before["groups"],
        "offsets": {
            **offsets,
            "orders@billing:0": 14,
            f"{MADE}@billing:2": 1,
            f"{LIGHT}@fresh:0": 3,
        },
        "bodies": {**before["bodies"], f"{MADE}:2": ["new"]},
    }


def _bodies_here() -> dict[str, list[str]]:
    bodies: dict[str, list[str]] = {}
    for number in range(600):
        topic = "orders" if number % 3 else MADE
        bodies.setdefault(f"{topic}:{number // 3 % 3}", []).append(f"body-{number}")
        if number % 5 == 0:
            bodies.setdefault(f"{LIGHT}:0", []).append(f"body-{number}")
    return bodies


def _steps(root: Path, *names: str) -> None:
    with open_migrator(root) as migrator:
        live = migrator.live
        for name in names:
            step: Callable[[], Job | object] = getattr(live, name)
            job = step()
            if isinstance(job, Job):
                assert job.wait(_WAIT_S)
                assert job.error is None, job.error
        assert live.state.phase is not Phase.ADOPTING
