"""What a reader process answers is what the server would: over random stores, and damaged ones."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.readers import LogPlace, Order, answer
from server.wire import Encoded, encode_pull
from store.errors import CorruptRecordError, StoreError
from store.log import LogFiles
from store.message import Message
from store.metadata import Retention
from store.reads import TagFilter
from tests.support.checked import checked
from tests.support.fake_clock import FakeClock
from tests.support.seeds import seeds
from tests.support.stores import SEGMENT_BYTES, open_small

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store.message_store import MessageStore
    from store.reads import PullPlan

LIGHT = "%LMQ%a"
#: Of an order that is given its files.
LOG = LogPlace("", SEGMENT_BYTES)
QUEUES = [("all", 0), ("all", 1), ("few", 0), ("bytes", 0), ("latest", 0), ("again", 0), (LIGHT, 0)]
#: "Aa" and "BB" have one code.
TAGS = ("", "Aa", "BB", "other")
FORMS = (pb.RECORD_FORM_WHOLE, pb.RECORD_FORM_DECODED)


def files_of(store: MessageStore) -> LogFiles:
    """As a reader process has them."""
    return LogFiles(store.config.root / "commitlog", SEGMENT_BYTES)


def plain(store: MessageStore, plan: PullPlan, form: pb.RecordForm) -> Encoded:
    """The server's own answer."""
    return in_order(encode_pull(store.reads.read_planned(plan), form))


def in_order(found: Encoded) -> Encoded:
    """The same with maps in one order."""
    response = pb.PullResponse.FromString(found.data)
    return found._replace(data=response.SerializeToString(deterministic=True))


def aside(files: LogFiles, plan: PullPlan, form: pb.RecordForm) -> Encoded | None:
    """That of a reader process. What a stream carries is held to what a call does."""
    found = answer(files, Order(LOG, plan, form, in_stream=False))
    streamed = answer(files, Order(LOG, plan, form, in_stream=True))
    assert (found is None) == (streamed is None)
    if found is None or streamed is None:
        return None
    response = pb.PullResponse.FromString(found.data)
    [batch] = pb.SubscribeResponse.FromString(streamed.data).queues
    assert batch == pb.QueueBatch(topic=plan.topic, queue_id=plan.queue_id, batch=response)
    assert found[:-1] == streamed[:-1]
    return in_order(found)


def fill(store: MessageStore, clock: FakeClock, rng: random.Random) -> None:
    """Topics of every kind, over some segments of which the first are dropped."""
    retentions = {"few": Retention(messages=30), "bytes": Retention(bytes=20_000)}
    store.create_topics([("all", 2), ("few", 1), ("bytes", 1), ("latest", 1)], retentions)
    for phase in range(3):
        for _ in range(rng.randint(20, 60)):
            topic, queue_id = rng.choice([each for each in QUEUES if each[0] != LIGHT])
            store.put(
                [
                    Message(
                        topic,
                        rng.randbytes(rng.choice((0, 10, 300, 3000))),
                        queue_id,
                        tag=rng.choice(TAGS),
                        keys=(f"k{rng.randint(0, 5)}",),
                        light_queues=(LIGHT,) if rng.random() < 0.3 else (),
                        properties={"p": "v" * rng.randint(1, 40)},
                    )
                    for _ in range(rng.randint(1, 8))
                ]
            )
        if phase == 0:
            store.delete_topic("again")
        elif phase == 1:
            store.maintenance.keep_latest("latest", 0, lambda _done, _total: None)
            clock.advance(rng.choice((0, 73)) * 3600)
            store.flush()
            store.expire()
        clock.advance(3600)
    store._services.kept_bytes.run()


def plans(store: MessageStore, rng: random.Random) -> Iterator[PullPlan]:
    filters = (None, TagFilter.parse("Aa"), TagFilter.parse("BB || other"))
    for topic, queue_id in QUEUES:
        low, high = store.bounds([(topic, queue_id)])[0]
        for tag_filter in filters:
            for offset in {low, rng.randint(low, high), max(low, high - 1), high}:
                yield store.reads.plan_pull(
                    topic,
                    queue_id,
                    offset,
                    max_messages=rng.choice((1, 7, 1000)),
                    max_bytes=rng.choice((1, 5000, 1 << 20)),
                    tag_filter=tag_filter,
                )


@pytest.mark.parametrize("seed", seeds(2, 12))
def test_it_answers_what_the_server_does(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    clock = FakeClock()
    given = {"hot_read_bytes": 0, "crc_item": seed % 6 != 5}
    with checked(open_small(tmp_path / "store", clock, **given)) as store:  # type: ignore[arg-type]
        fill(store, clock, rng)
        files = files_of(store)
        messages = 0
        for plan in plans(store, rng):
            for form in FORMS:
                wanted = plain(store, plan, form)
                assert aside(files, plan, form) == wanted
                messages += wanted.message_count
        assert messages > 150, "there was something to read"


def one_plan(store: MessageStore) -> PullPlan:
    for number in range(200):
        store.put([Message("T", b"%04d" % number * 250)])
    store.flush()
    plan = store.reads.plan_pull("T", 0, 0, max_messages=200, max_bytes=1 << 20, tag_filter=None)
    assert len({offset // SEGMENT_BYTES for offset, _ in plan.places}) > 2
    return plan


@pytest.mark.damages
def test_nothing_is_answered_where_a_record_is_damaged(tmp_path: Path) -> None:
    with open_small(tmp_path / "store") as store:
        plan = one_plan(store)
        assert aside(files_of(store), plan, pb.RECORD_FORM_WHOLE) is not None
        offset, size = plan.places[150]
        path = store.config.root / "commitlog" / f"{offset - offset % SEGMENT_BYTES:020d}"
        with path.open("r+b") as file:
            file.seek(offset % SEGMENT_BYTES + size // 2)
            file.write(b"?")
        assert aside(files_of(store), plan, pb.RECORD_FORM_WHOLE) is None
        # The server's own way: what comes before, and then the error.
        assert len(store.reads.read_planned(plan).records) == 150
        with pytest.raises(CorruptRecordError):
            store.pull("T", 0, 150)


def test_nothing_is_answered_where_a_segment_is_gone(tmp_path: Path) -> None:
    clock = FakeClock()
    with checked(open_small(tmp_path / "store", clock)) as store:
        plan = one_plan(store)
        clock.advance(100 * 3600)
        store.put([Message("T", b"young" * 10)])
        store.flush()
        assert store.expire()
        assert aside(files_of(store), plan, pb.RECORD_FORM_WHOLE) is None
        with pytest.raises(StoreError, match="is outside"):
            store.reads.read_planned(plan)


@pytest.mark.parametrize(
    "change",
    [
        {"queue_id": 1},  # of another queue
        {"queue_offsets": [5, 6]},  # of other messages of it
        {"places": [(0, 0), (1, 1)]},
        {"places": [(0, -5), (-7, 100)]},
        {"places": [(0, 1 << 31), (1 << 60, 100)]},
    ],
)
def test_nothing_is_answered_to_units_that_point_elsewhere(
    tmp_path: Path, change: dict[str, object]
) -> None:
    with checked(open_small(tmp_path / "store")) as store:
        store.put([Message("T", b"a"), Message("T", b"b")])
        plan = store.reads.plan_pull("T", 0, 0, max_messages=2, max_bytes=1 << 20, tag_filter=None)
        assert aside(files_of(store), plan, pb.RECORD_FORM_WHOLE) is not None
        wrong = plan._replace(**change)  # type: ignore[arg-type]
        assert (
            answer(files_of(store), Order(LOG, wrong, pb.RECORD_FORM_WHOLE, in_stream=False))
            is None
        )
