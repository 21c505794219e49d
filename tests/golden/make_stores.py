"""Writes stores with the program that runs it, and what that program answered about them.

    python tests/golden/make_stores.py kept DIRECTORY      # the stores in tests/golden/kvcq
    python tests/golden/make_stores.py million DIRECTORY   # a store with a million topics

Run it with an older program on the path to get the stores of that program; README.md in
tests/golden/kvcq says which programs wrote the stores there. The clock is a fake one, so messages,
offsets and times are the same in each run; ids and file numbers of RocksDB are not.
"""

from __future__ import annotations

import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvcq.opening import open_store
from server.access import rights
from server.access.limits import Limits
from server.access.rights import Right, Role
from server.access.secrets import Vault
from server.access.users import Users
from store.config import StoreConfig
from store.consume_queue import Boundary
from store.errors import StoreError
from store.format import BatchMark, unpack_record
from store.message import Message, PlainMessages
from store.metadata import Retention
from tests.support.fake_clock import FakeClock

if TYPE_CHECKING:
    from store.message_store import MessageStore
    from store.metadata import TopicConfig

SEGMENT_BYTES = 64 << 10
BEGIN_MS = 1_700_000_000_000
#: When the answers were given: the clock of a test stands here.
ANSWERED_MS = BEGIN_MS + 100 * 3_600_000
HOUR_S = 3600.0
#: Of the store with many topics.
MILLION = 1_000_000

LIGHT = tuple(f"%LMQ%device-{number}" for number in range(12))
BATCHES = [("plant/7", 0), ("plant/7", 5), ("keyed", 0), ("nobody", 0)]
GROUPS = ("billing", "audit", "devices")
KEYS = [
    *(("orders", f"order-{number}") for number in (0, 7, 100, 199)),
    ("orders", "every"),
    ("orders", "absent"),
    ("again", "twice"),
    ("prices", "gold"),
    ("keyed", "k1"),
]
TIMES_MS = [BEGIN_MS + hours * 3_600_000 for hours in (-1, 0, 71, 72, 73, 79, 90, 101)]


def config_of(root: Path) -> StoreConfig:
    """Settings under which nothing happens by itself."""
    # Of earlier programs, which make stores by this, too.
    names = StoreConfig.__dataclass_fields__
    forcibly: dict[str, Any] = dict.fromkeys(names.keys() & {"disk_clean_forcibly_ratio"}, 1.0)
    return StoreConfig(
        root=root,
        segment_bytes=SEGMENT_BYTES,
        preallocate=False,
        disk_clean_ratio=1.0,
        disk_full_ratio=1.0,
        delete_when_hours=(),
        clean_interval_s=1e6,
        flush_interval_ms=10_000_000,
        default_queue_count=4,
        **forcibly,
    )


def open_at(root: Path, clock: FakeClock) -> MessageStore:
    return open_store(config_of(root), clock=clock)


# --- what is written -----------------------------------------------------------------------


def write(root: Path) -> MessageStore:
    """A store with one of everything, left open."""
    clock = FakeClock(BEGIN_MS)
    store = open_at(root, clock)
    _users(store, root, clock)
    store.create_topics(
        [("idle", 1), ("gone", 2), ("again", 2), ("empty", 3), ("orders", 4)],
        {"orders": Retention()},
    )
    # What retention drops below, with a queue that has nothing else, and topics that go.
    store.put([Message("idle", b"the only one", keys=("lonely",))])
    for number in range(30):
        store.put(
            [
                Message("gone", bytes(2000), number % 2, keys=("gone",), light_queues=LIGHT[:1]),
                Message("again", b"before", number % 2, keys=("twice",), light_queues=LIGHT[1:2]),
            ]
        )
    store.commit_offsets("billing", [("idle", 0, 1), ("gone", 0, 4), ("again", 1, 9)])
    store.delete_topic("gone")
    store.delete_topic("again")
    store.delete_topic(LIGHT[1])
    store.create_topics([("again", 3)])
    clock.advance(71 * HOUR_S)
    _messages(store, clock)
    store.commit_offsets("audit", [("orders", 1, 20), ("again", 2, 2), (LIGHT[2], 0, 2)])
    # The first segment goes; what is behind it is far younger.
    clock.advance(5 * HOUR_S)
    store.flush()
    assert store.expire() == 1, "retention was to drop one segment"
    _messages_of_topics_that_keep_less(store, clock)
    store.commit_offsets("devices", [(name, 0, 1) for name in LIGHT[3:6]])
    _set_wall(clock, ANSWERED_MS)
    return store


def _messages(store: MessageStore, clock: FakeClock) -> None:
    for number in range(200):
        store.put(
            [
                Message(
                    "orders",
                    f"order {number}".encode() * (number % 9),
                    number % 4,
                    tag="" if number % 3 else "paid",
                    keys=(f"order-{number}", "every"),
                    light_queues=LIGHT[number % 12 : number % 12 + 2],
                    properties={"region": "Zürich", "n": str(number)} if number % 5 else None,
                    flag=number % 7,
                    born_time_ms=BEGIN_MS + number,
                    born_host=("2001:db8::7", 40_000) if number % 4 else ("10.0.0.9", 9),
                    reconsume_times=number % 2,
                )
            ]
        )
        if number % 10 == 0:
            clock.advance(300)
    for number in range(6):
        store.put(
            [Message("again", b"after", number % 3, keys=("twice",), light_queues=LIGHT[1:2])]
        )
    store.put([Message("orders", b"never committed", 0, sys_flag=0x4, keys=("prepared",))])
    store.put([Message("orders", b"large" * 11_000, 3, keys=("large",))])


def _messages_of_topics_that_keep_less(store: MessageStore, clock: FakeClock) -> None:
    store.create_topics(
        [("a-day", 1), ("few-bytes", 2), ("few", 2), ("prices", 1), ("keyed", 2)],
        {
            "a-day": Retention(time_ms=22 * 3_600_000),
            "few-bytes": Retention(bytes=3000),
            "few": Retention(messages=5),
            "prices": Retention(latest=True),
        },
    )
    for number in range(40):
        body = f"number {number}".encode() * 10
        store.put([Message("a-day", body), Message("few-bytes", body, number % 2)])
        store.put([Message("few", body, number % 2, tag=f"t{number % 3}")])
        store.put([Message("prices", body[: number % 8 * 4], keys=(("gold", "tin")[number % 2],))])
        clock.advance(120)
    store.flush()
    store.maintenance.keep_latest("prices", 0, lambda _done, _total: None)
    plain = PlainMessages(
        ["orders"] * 60,
        [f"plain {number}".encode() for number in range(60)],
        [number % 4 for number in range(60)],
        [BEGIN_MS] * 60,
        ("10.1.1.1", 5000),
        [",".join(LIGHT[number % 6 : number % 6 + number % 3]) for number in range(60)],
    )
    store.append(plain)
    store.append(plain[:5], mark=BatchMark("plant/7", 0, 5, 0x1234, 5))
    store.append(plain[5:50], mark=BatchMark("plant/7", 5, 45, 0x5678, 50))
    keyed = [
        Message("keyed", f"keyed {number}".encode(), number % 2, keys=("k1",))
        for number in (0, 1, 2)
    ]
    store.append(keyed, mark=BatchMark("keyed", 0, 3, 7, 3))
    store.flush()
    store.bounds([("few-bytes", 0), ("few-bytes", 1)])  # asked for, so that they are counted
    store._services.kept_bytes.run()


def _kind(name: str) -> rights.ResourceKind:
    """An earlier program, in whose tree this file is run, calls it Kind."""
    kind: type[rights.ResourceKind] = getattr(rights, "ResourceKind", None) or rights.Kind  # type: ignore[attr-defined]
    return kind[name]


def _users(store: MessageStore, root: Path, clock: FakeClock) -> None:
    users = Users(store.notes, Vault.open(root.with_name(f"{root.name}.key")), clock)
    users.create("admin", is_admin=True, secret="secret-of-admin")
    users.create("shop", secret="secret-of-shop", limits=Limits(connections=3, bytes_per_s=1 << 20))
    users.create("left", secret="secret-of-left")
    users.grant(
        "shop",
        [
            Right(Role.PUBLISH, _kind("TOPIC"), "orders"),
            Right(Role.SUBSCRIBE, _kind("GROUP"), "bill*"),
        ],
    )
    users.delete("left")


def _set_wall(clock: FakeClock, wall_ms: int) -> None:
    assert clock.wall_ms <= wall_ms, "the answers were to be given later"
    clock.advance((wall_ms - clock.wall_ms) / 1000)


# --- what it answers -----------------------------------------------------------------------


def answers(store: MessageStore, key_file: Path) -> dict[str, Any]:
    """What every call answers about the store. It is read only."""
    topics = store.list_topics("", None, 1000)
    light = store.list_light_queues("", None, 1000)
    queues = [(topic.name, queue) for topic in topics for queue in range(topic.queue_count)]
    queues += [(name, 0) for name in light]
    users = Users(store.notes, Vault.open(key_file), FakeClock(ANSWERED_MS))
    return {
        "log": [
            store.log.start_offset,
            store.log.appended_offset,
            store.maintenance.first_store_time_ms(),
        ],
        "topics": [_topic(each) for each in topics],
        "light_queues": light,
        "queues": {f"{topic}:{queue}": _queue(store, topic, queue) for topic, queue in queues},
        "unknown": [_error(store, name) for name in ("gone", "never-there", "%LMQ%never")],
        "queries": {f"{topic}:{key}": _query(store, topic, key) for topic, key in KEYS},
        "batches": {f"{name}:{number}": _batch(store, name, number) for name, number in BATCHES},
        "groups": store.list_groups(None, 1000),
        "committed": {
            group: [list(each) for each in store.list_committed(group, None, 1000)]
            for group in GROUPS
        },
        "users": [
            [
                user.name,
                user.secret,
                user.is_admin,
                sorted(
                    [each.role.value, each.kind.value, each.pattern] for each in user.rights.rights
                ),
                list(user.limits),
                user.created_ms,
            ]
            for user in users.every()
        ],
    }


def _topic(topic: TopicConfig) -> list[Any]:
    return [topic.name, topic.queue_count, topic.created_ms, topic.created_offset, *topic.retention]


def _queue(store: MessageStore, topic: str, queue: int) -> dict[str, Any]:
    low, high = store.bounds([(topic, queue)])[0]
    return {
        "bounds": [low, high],
        "in_log": list(store.bounds_in_log([(topic, queue)])[0]),
        "messages": _pull(store, topic, queue, ""),
        "paid": [offset for offset, _ in _pull(store, topic, queue, "paid || t1")],
        "hidden": store.maintenance.hidden_messages(topic, queue),
        "backlog_since_ms": store.backlog_since_ms(topic, queue, low),
        "searches": [
            store.search_time(topic, queue, time_ms, boundary)
            for time_ms in TIMES_MS
            for boundary in Boundary
        ],
    }


def _pull(store: MessageStore, topic: str, queue: int, tags: str) -> list[list[Any]]:
    at = store.bounds([(topic, queue)])[0][0]
    found: list[list[Any]] = []
    while True:
        pulled = store.pull(topic, queue, at, tag_filter=tags)
        found += [
            [offset, _message(record)]
            for offset, record in zip(pulled.queue_offsets, pulled.records, strict=True)
        ]
        if pulled.next_offset == at:
            return found
        at = pulled.next_offset


def _message(record: bytes) -> dict[str, Any]:
    message = asdict(unpack_record(record))
    message["body"] = [len(message["body"]), sha256(message["body"]).hexdigest()[:16]]
    return message


def _query(store: MessageStore, topic: str, key: str) -> list[int]:
    """Physical offsets; page by page."""
    found: list[int] = []
    cursor: bytes | None = None
    while True:
        page = store.query(topic, key, limit=7, cursor=cursor)
        found += [unpack_record(record).physical_offset for record in page.records]
        if page.complete:
            return found
        cursor = page.cursor


def _batch(store: MessageStore, producer: str, number: int) -> list[int | None] | None:
    records = store.batch_records(producer, number)
    if records is None:
        return None
    return [None if each is None else unpack_record(each).physical_offset for each in records]


def _error(store: MessageStore, topic: str) -> str:
    try:
        return str(store.bounds([(topic, 0)]))
    except StoreError as error:
        return type(error).__name__


# --- packing -------------------------------------------------------------------------------


def _child(root: Path, told: Path, how: str) -> None:
    """Write a store, tell the answers, and end: in order, or by SIGKILL."""
    store = write(root)
    if how == "killed":
        # Nothing was flushed since: the next opening has it from what a kill leaves.
        store.put([Message("orders", b"the last one", 2, keys=("order-199",), light_queues=LIGHT)])
    told.write_text(json.dumps(answers(store, root.with_name(f"{root.name}.key"))))
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    store.close()


def make_kept(target: Path) -> None:
    """`stopped` and `killed`, packed, with their answers."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("stopped", "killed"):
            root, told = Path(scratch) / name / "store", Path(scratch) / f"{name}.json"
            root.parent.mkdir()
            command = [sys.executable, __file__, "child", str(root), str(told), name]
            ended = subprocess.run(command, check=False, env=os.environ).returncode
            assert ended == (-signal.SIGKILL if name == "killed" else 0), ended
            _pack(root.parent, target / f"{name}.tar.xz")
            answered = target / f"{name}.expected.json.xz"
            answered.write_bytes(lzma.compress(told.read_bytes(), preset=9))


def _pack(root: Path, target: Path) -> None:
    def anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(target, "w:xz", preset=9) as archive:
        archive.add(root, root.name, filter=anonymous)


def make_million(root: Path, count: int = MILLION) -> None:
    """A store with that many topics, each tenth with a message, each hundredth with an offset."""
    shutil.rmtree(root, ignore_errors=True)
    with open_store(config_of(root), clock=FakeClock(BEGIN_MS)) as store:
        for begin in range(0, count, 1000):
            names = [f"topic-{number:07d}" for number in range(begin, min(begin + 1000, count))]
            store.create_topics([(name, 1 + number % 3) for number, name in enumerate(names)])
            store.put([Message(name, name.encode()) for name in names[::10]])
            store.commit_offsets("million", [(name, 0, 1) for name in names[::100]])


def main() -> None:
    what, *rest = sys.argv[1:]
    if what == "kept":
        make_kept(Path(rest[0]))
    elif what == "million":
        make_million(Path(rest[0]))
    else:
        _child(Path(rest[0]), Path(rest[1]), rest[2])


if __name__ == "__main__":
    main()
