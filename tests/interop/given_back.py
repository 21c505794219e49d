"""Stores of a broker's, taken over, changed here and given back, for the broker to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from migration.migrator import open_migrator
from migration.release import Home, release
from migration.steps.adopting import adopt
from store.config import StoreConfig
from store.message import Message
from tests.support.broker_store import LAYOUT, SEGMENT_BYTES, extract_broker, found_by_broker
from tests.support.migrating import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.broker_judge import BrokerJudge

MADE = "made-here"
_WAIT_S = 120.0


def give_back(form: str, scratch: Path) -> Path:
    """A store of that form, released for its broker with a topic more and one less."""
    scratch.mkdir(parents=True, exist_ok=True)
    root = extract_broker(scratch, form)
    adopt(root, layout=LAYOUT)
    with open_store(StoreConfig(root=root, segment_bytes=SEGMENT_BYTES)) as store:
        store.create_topics([(MADE, 3)])
        store.delete_topic("empty")
        store.put([Message(topic=MADE, body=b"new", queue_id=2, keys=("k",), tag="t")])
        store.commit_offsets("billing", [("orders", 0, 14), (MADE, 2, 1)])
        store.commit_offsets("fresh", [("%LMQ%device-1", 0, 3)])
        store.delete_group("audit")
    if form == "lmq":
        release(root, home=Home.FILES)
        return root
    with open_migrator(root) as migrator:
        for step in (migrator.live.start, migrator.live.verify):
            job = step()
            assert job.wait(_WAIT_S)
            assert job.error is None, job.error
    release(root, home=Home.ROCKSDB)
    return root


def expected_after(form: str) -> dict[str, Any]:
    """What the broker has to find in it."""
    before = found_by_broker(form)
    topics = {name: count for name, count in before["topics"].items() if name != "empty"}
    offsets = {name: at for name, at in before["offsets"].items() if "@audit:" not in name}
    return {
        "topics": {**topics, MADE: 3},
        "groups": before["groups"],
        "offsets": {
            **offsets,
            "orders@billing:0": 14,
            f"{MADE}@billing:2": 1,
            "%LMQ%device-1@fresh:0": 3,
        },
        "bodies": {**before["bodies"], f"{MADE}:2": ["new"]},
    }


def compare_given_back(judge: BrokerJudge, form: str, scratch: Path) -> None:
    """Raises AssertionError when the broker finds anything else."""
    found = judge.read(form, give_back(form, scratch))
    for part, expected in expected_after(form).items():
        assert found[part] == expected, (form, part, found[part])
