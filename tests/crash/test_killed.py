"""P1 and P6: a process is killed at a named point; what it had acknowledged is there, once."""

from __future__ import annotations

import json
import signal
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from kvcq.inspect import inspect_store
from store.config import FlushMode
from store.errors import UnknownTopicError
from store.format.record import unpack_record
from store.message import Message
from tests.support.checked import assert_whole
from tests.support.forked import run_forked
from tests.support.rebuild import differences
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore

pytestmark = pytest.mark.crash

#: How often each point is entered before the kill: early, and late enough for rolls and flushes.
COUNTS = {
    "after append": (1, 60),
    "in append": (37,),
    "at roll": (2,),
    "new segment": (2,),
    "before fsync": (9,),
    "in dispatch": (45,),
    "in flush of queues": (1, 2),
    "in checkpoint": (2,),
    "in deletion": (2,),
    "after deletion": (2,),
    "behind a record of state": (1, 2, 31),
    "before its rows": (1, 27),
    "in snapshot": (1, 4),
    "before the seal": (1, 3),
    "as one is removed": (1,),
}


@dataclass
class Administered:
    """Topics that were made, what T0 keeps, and what groups have committed."""

    topics: dict[str, int] = field(default_factory=dict)
    kept: int = 0
    groups: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, store: MessageStore) -> Administered:
        topics = {topic.name: topic for topic in store.list_topics("", None, 99)}
        made = {name: each.queue_count for name, each in topics.items() if name[:4] == "made"}
        kept = topics["T0"].retention.messages if "T0" in topics else 0
        groups = {
            group: store.committed_offsets(group, [("T0", 0)])[0] or 0
            for group in store.list_groups(None, 99)
        }
        return cls(made, kept, groups)

    @classmethod
    def after(cls, told: list[list[object]]) -> list[Administered]:
        """What was acknowledged; what was under way may be there, too."""
        found = cls()
        begun: list[Any] | None = None
        for line in told:
            if line[0] == "begun":
                begun = line[1:]
            elif line[0] == "done":
                assert begun is not None
                found.apply(*begun)
            if line[0] in ("done", "refused"):
                begun = None
        if begun is None:
            return [found]
        other = deepcopy(found)
        other.apply(*begun)
        return [found, other]

    def apply(self, what: str, *of: Any) -> None:  # noqa: ANN401
        match what:
            case "make":
                self.topics[of[0]] = of[1]
            case "end":
                self.topics.pop(of[0], None)
            case "keep":
                self.kept = 1_000_000 + of[1]
            case "commit":
                self.groups[of[0]] = of[3]
            case _:
                self.groups.pop(of[0], None)


def run_child(root: Path, mode: FlushMode, point: str, count: int) -> list[list[object]]:
    child = run_forked("tests.crash.putting_child", root, mode.value, point, count)
    assert child.returncode == -signal.SIGKILL, "it never came to the point"
    return [json.loads(line) for line in child.stdout.splitlines() if line.endswith(b"]")]


@pytest.mark.parametrize(
    ("point", "count", "mode"),
    [
        (point, count, mode)
        for number, point in enumerate(COUNTS)
        for count in COUNTS[point]
        # Each point in one of the modes; fsync only matters to one.
        for mode in ([FlushMode.SYNC] if number % 2 or "fsync" in point else [FlushMode.ASYNC])
    ],
)
def test_p1_p6_acknowledged_messages_survive_a_kill(
    tmp_path: Path, point: str, count: int, mode: FlushMode
) -> None:
    root = tmp_path / "store"
    told = run_child(root, mode, point, count)
    assert_whole(root)
    with open_small(root, flush_mode=mode) as store:
        for line in told:
            if line[0] != "put":
                continue
            _, number, places = line
            assert isinstance(places, list)
            for each, (topic, queue_id, offset, place) in enumerate(places):
                expected = json.dumps([number, each]).encode().ljust(700)
                pulled = store.pull(topic, queue_id, offset, max_messages=1)
                assert unpack_record(pulled.records[0]).body == expected
                assert unpack_record(store.get(place)).body == expected
            found = {
                unpack_record(record).body
                for topic in ("T0", "T1")
                for record in store.query(topic, f"k{number}").records
            }
            assert len(found) == 4
        light = sum(line[0] in ("put", "light") for line in told)
        assert light <= store.queues.next_offsets([("%LMQ%a", 0)])[0] <= light + 1
        assert Administered.of(store) in Administered.after(told)
        if told and told[-1] == ["deleted"]:
            with pytest.raises(UnknownTopicError):
                store.describe_topic("gone")
        # All families at one point, each row made from a record, none missing.
        assert store.queues.dispatched_offset == store.log.appended_offset
        assert differences(store) == []
        # And it goes on: no offset is given out twice.
        before = store.bounds([("T0", 0)])[0].max_offset
        assert store.put([Message("T0", b"more")]).placed[0].queue_offset == before
    assert inspect_store(root).findings == []
