"""One batch for a run of records: every unit, the last bounds, the index, the checkpoint."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq.tables import dispatch_batch, keys
from kvcq.tables.dispatch_batch import build_batch
from kvcq.tables.light_rows import light_rows
from kvcq.tables.values import expiry_stamp, pack_max
from store.consume_queue import CqUnit, DispatchRequest, PlainRequests
from store.light_columns import LightNames
from tests.support.rows import index_key, pack_unit


def request(
    topic: str,
    offset: int,
    physical: int,
    *,
    message_keys: tuple[str, ...] = (),
    lights: tuple[tuple[str, int], ...] = (),
    in_queue: bool = True,
) -> DispatchRequest:
    return DispatchRequest(
        topic, 1, offset, physical, 50, 77, 1_700_000_000_456, message_keys, lights, in_queue
    )


def test_every_queue_gets_its_units_and_one_max_row() -> None:
    batch = build_batch(
        [
            request("A", 0, 0, lights=(("%LMQ%x", 4),)),
            request("A", 1, 50),
            request("B", 9, 100, lights=(("%LMQ%x", 5),)),
        ],
        150,
    )
    stamp_time = 1_700_000_000_456
    assert batch.puts[keys.UNITS] == [
        (keys.unit_key("A", 1, 0), pack_unit(CqUnit(0, 50, 77, stamp_time))),
        (keys.unit_key("A", 1, 1), pack_unit(CqUnit(50, 50, 77, stamp_time))),
        (keys.unit_key("B", 1, 9), pack_unit(CqUnit(100, 50, 77, stamp_time))),
        (keys.unit_key("%LMQ%x", 0, 4), pack_unit(CqUnit(0, 50, 77, stamp_time))),
        (keys.unit_key("%LMQ%x", 0, 5), pack_unit(CqUnit(100, 50, 77, stamp_time))),
    ]
    assert dict(batch.puts[keys.BOUNDS]) == {
        keys.max_key("A", 1): pack_max(50, 1),
        keys.max_key("B", 1): pack_max(100, 9),
        keys.max_key("%LMQ%x", 0): pack_max(100, 5),
        keys.DISPATCHED_KEY: (150).to_bytes(8, "big"),
    }
    assert not batch.delete_ranges
    assert not batch.deletes


def test_rows_rise_whatever_the_order_of_queues() -> None:
    # The last one is what is left of a message whose topic is gone.
    lights = (("%LMQ%long", 2), ("%LMQ%b", 7), ("%LMQ%a", 1))
    batch = build_batch(
        [
            request("Topic", 3, 0, lights=lights),
            request("A", 0, 50, lights=(("%LMQ%b", 8),)),
            request("%LMQ%b", 9, 100)._replace(queue_id=0),
        ],
        150,
    )
    units = [key for key, _ in batch.puts[keys.UNITS]]
    assert units == sorted(units)
    assert len(units) == 7
    bounds = [*batch.puts[keys.BOUNDS]]
    assert bounds[-1][0] == keys.DISPATCHED_KEY
    assert [key for key, _ in bounds[:-1]] == sorted(key for key, _ in bounds[:-1])
    assert dict(bounds)[keys.max_key("%LMQ%b", 0)] == pack_max(100, 9)


_records = st.tuples(
    st.sampled_from(["A", "B", "größe"]),
    st.integers(0, 2),
    st.sampled_from([(), (), ("k",), ("k", "l")]),
    st.sampled_from([0, 0, 1000]),
)


@given(st.lists(_records, min_size=1, max_size=30))
def test_columns_give_what_one_after_the_other_gives(
    records: list[tuple[str, int, tuple[str, ...], int]],
) -> None:
    time_ms = 1_700_000_000_456
    requests = []
    for number, (topic, queue_id, words, later_ms) in enumerate(records):
        time_ms += later_ms
        one = request(topic, number + 5, 50 * number, message_keys=words)
        requests.append(one._replace(queue_id=queue_id, store_time_ms=time_ms, tag_code=number))
    assert dispatch_batch._rows_by_columns(requests) == dispatch_batch._rows(requests)
    for one in requests:
        assert dispatch_batch._rows_of_one(one) == dispatch_batch._rows([one])


@given(
    queues=st.lists(
        st.tuples(st.sampled_from(["A", "B", "größe"]), st.integers(0, 2)), min_size=1, max_size=30
    ),
    one_queue=st.booleans(),
    first_keys=st.sampled_from([(), ("\x02p:0000000000000000007",)]),
    time_ms=st.sampled_from([0, 999, 1_700_000_000_456, 1 << 45]),
)
def test_requests_in_columns_give_what_they_give_one_after_the_other(
    queues: list[tuple[str, int]], one_queue: bool, first_keys: tuple[str, ...], time_ms: int
) -> None:
    if one_queue:
        queues = queues[:1] * len(queues)
    topics, queue_ids = zip(*queues, strict=True)
    count = len(queues)
    places = np.arange(count) * 50 + (1 << 40)
    sizes = np.arange(count) + 30
    columns = (topics, queue_ids, range(7, 7 + count), places, sizes, time_ms, first_keys)
    requests = PlainRequests(*columns)
    assert dispatch_batch._rows_of_plain(requests) == dispatch_batch._rows(list(requests))


@given(st.lists(st.sampled_from([*"AaBbCcDd", "größe", "longer"]), min_size=1, unique=True))
def test_columns_give_what_one_after_the_other_gives_of_first_messages(topics: list[str]) -> None:
    requests = [request(topic, 0, 50 * number) for number, topic in enumerate(topics)]
    assert dispatch_batch._rows_by_columns(requests) == dispatch_batch._rows(requests)


def test_light_queues_and_open_transactions_do_not_go_by_columns() -> None:
    plain = request("A", 0, 0)
    for other in (
        request("A", 1, 50, lights=(("%LMQ%x", 0),)),
        request("A", 0, 50, in_queue=False),
    ):
        assert dispatch_batch._rows_by_columns([plain, other]) is None


def test_index_rows_end_with_the_stamp_so_that_they_expire() -> None:
    batch = build_batch([request("A", 0, 10, message_keys=("k1", "k2"))], 60)
    time_ms = 1_700_000_000_456
    assert batch.puts[keys.INDEX] == [
        (index_key("A", "k1", time_ms, 10), expiry_stamp(time_ms)),
        (index_key("A", "k2", time_ms, 10), expiry_stamp(time_ms)),
    ]


def test_what_stands_in_no_queue_gets_index_rows_only() -> None:
    batch = build_batch([request("A", 0, 0, message_keys=("k",), in_queue=False)], 50)
    assert batch.puts[keys.UNITS] == []
    assert [key for key, _ in batch.puts[keys.BOUNDS]] == [keys.DISPATCHED_KEY]
    assert len(batch.puts[keys.INDEX]) == 1


def test_nothing_to_dispatch_still_moves_the_checkpoint() -> None:
    batch = build_batch([], 4096)
    assert batch.puts[keys.BOUNDS] == [(keys.DISPATCHED_KEY, (4096).to_bytes(8, "big"))]


_names = st.sampled_from(["A", "B", "longer", "größe", "%LMQ%a"])
_lights = st.lists(st.sampled_from(["%LMQ%a", "%LMQ%b", "%LMQ%größe"]), unique=True)


@given(st.lists(st.tuples(_names, st.integers(0, 2), _lights, st.booleans())))
def test_rows_are_those_of_each_record_by_itself(
    records: list[tuple[str, int, list[str], bool]],
) -> None:
    requests = [
        request(
            topic,
            number,
            50 * number,
            lights=tuple((name, number) for name in lights if name != topic),
            in_queue=in_queue,
        )._replace(queue_id=0 if topic == "%LMQ%a" else queue_id)
        for number, (topic, queue_id, lights, in_queue) in enumerate(records)
    ]
    units: dict[bytes, bytes] = {}
    bounds: dict[bytes, bytes] = {}
    for each in requests:
        if each.in_queue:
            place = each.physical_offset
            value = pack_unit(CqUnit(place, 50, 77, each.store_time_ms))
            own = (each.topic, each.queue_id, each.queue_offset)
            for name, queue_id, offset in (own, *((n, 0, at) for n, at in each.light_queues)):
                units[keys.unit_key(name, queue_id, offset)] = value
                bounds[keys.max_key(name, queue_id)] = pack_max(place, offset)
    end = (keys.DISPATCHED_KEY, (7).to_bytes(8, "big"))
    for few in (1, 10**6):  # by columns, and one after the other
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("kvcq.tables.light_rows._FEW", few)
            puts = build_batch(requests, 7).puts
        assert puts[keys.UNITS] == sorted(units.items())
        assert puts[keys.BOUNDS] == [*sorted(bounds.items()), end]


@given(st.integers(0, 2**32), st.sampled_from([1, 40, 1000]), st.sampled_from(["A", "%LMQ%7"]))
def test_light_queues_by_columns_are_what_they_are_one_by_one(
    seed: int, queues: int, topic: str
) -> None:
    chance = random.Random(seed)
    offsets: dict[str, int] = {}
    requests = []
    for number in range(chance.randint(1, 30)):
        names = {
            f"%LMQ%{chance.choice(('', 'a-far-away-', 'b-far-away-'))}{chance.randrange(queues)}"
            for _ in range(chance.choice((0, 3, 30)))
        }
        lights = []
        for name in names - {topic}:
            # A log of RocketMQ's may begin a queue again.
            offsets[name] = 0 if chance.random() < 0.05 else offsets.get(name, 2**40) + 1
            lights.append((name, offsets[name]))
        each = request(
            topic,
            number,
            60 * number,
            lights=tuple(lights),
            message_keys=("k",) * chance.randint(0, 1),
            in_queue=chance.random() < 0.9,
        )
        requests.append(each._replace(store_time_ms=each.store_time_ms + number // 3 * 1000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kvcq.tables.light_rows._FEW", 10**6)
        plain = build_batch(requests, 5)
        patch.setattr("kvcq.tables.light_rows._FEW", 1)
        assert build_batch(requests, 5) == plain


@given(
    st.lists(
        st.lists(st.sampled_from(["%LMQ%a", "%LMQ%b", "%LMQ%cd"]), unique=True),
        min_size=1,
        max_size=30,
    ).filter(any),
    st.sampled_from(["A", "%", "largest"]),
    st.data(),
)
def test_plain_requests_with_light_queues_give_what_each_gives(
    lists: list[list[str]], topic: str, data: st.DataObject
) -> None:
    count = len(lists)
    names = LightNames(",".join(name for each in lists for name in each), list(map(len, lists)))
    places = np.arange(count) * 70
    plain = PlainRequests(
        [topic] * count,
        [at % 2 for at in range(count)],
        range(count),
        places,
        np.full(count, 70),
        1_700_000_000_456,
        ("mark",),
        names.take(np.arange(len(names.different)))[0],
    )
    begin = data.draw(st.integers(0, count - 1))
    part = slice(begin, data.draw(st.integers(begin + 1, count)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kvcq.tables.light_rows._FEW", 10**6)
        patch.setattr(dispatch_batch, "_FEW", 10**6)
        one_by_one = build_batch(list(plain)[part], 5)
        assert build_batch(plain[part], 5) == one_by_one
        patch.setattr("kvcq.tables.light_rows._FEW", 1)
        assert build_batch(plain[part], 5) == one_by_one


def test_names_that_are_not_plain_to_see_in_columns_go_the_other_way() -> None:
    def found(*names: str) -> object:
        return light_rows([request("T", 0, 0, lights=tuple((name, 3) for name in names))])

    assert found("%LMQ%c") is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kvcq.tables.light_rows._FEW", 1)
        assert found("%LMQ%a,b", "%LMQ%c") is None
        assert found("", "a") is None
        assert found("%LMQ%c") is not None
