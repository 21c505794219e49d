"""A small closed store with faults to be planted in it, and what a check says of it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import DERIVED
from migration.check import check_store
from store.message import Message
from tests.support.fake_clock import FakeClock
from tests.support.stores import SEGMENT_BYTES, open_small

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kvcq.engine.protocol import KvEngine
    from kvcq.inspect.findings import Finding, Kind
    from store.message_store import MessageStore

TOPICS = ("alpha", "beta")


def make_checked(root: Path) -> Path:
    """A closed store: two topics and a light queue over two segments."""
    clock = FakeClock()
    with open_small(root, clock) as store:
        fill(store, clock)
        store.commit_offsets("group", [("alpha", 0, 3)])
    return root


def fill(store: MessageStore, clock: FakeClock, count: int = 30) -> None:
    for number in range(count):
        store.put(
            [
                Message(
                    topic,
                    b"x" * 900,
                    queue_id=number % 2,
                    tag="t",
                    keys=(f"k{number % 5}",),
                    light_queues=("%LMQ%light",) if number % 3 == 0 else (),
                    properties={"UNIQ_KEY": f"{topic}{number}"},
                )
                for topic in TOPICS
            ]
        )
        clock.advance(1)


@contextmanager
def database(root: Path) -> Iterator[KvEngine]:
    engine = RocksEngine.open(root / "kvcq", DERIVED)
    yield engine
    engine.close()


def faults(root: Path) -> list[Finding]:
    return [finding for finding in check_store(root) if finding.is_fault]


def only(root: Path, kind: Kind) -> Finding:
    found = faults(root)
    assert {finding.kind for finding in found} == {kind}, [str(finding) for finding in found]
    return found[0]


def flip(path: Path, position: int, mask: int = 1) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ mask]))


def segment(root: Path, number: int = 0) -> Path:
    return root / "commitlog" / f"{number * SEGMENT_BYTES:020}"
