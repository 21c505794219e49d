"""A fan-out is divided as the store counts: each part fits, and has what a record has room for."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kvcq_client.format import divided
from kvcq_client.values import Message
from store.errors import InvalidArgumentError
from store.format.preparing import prepare
from store.message import Message as Stored

own = st.fixed_dictionaries(
    {
        "tag": st.sampled_from(["", "tag", "订单"]),
        "keys": st.lists(st.sampled_from(["a", "b" * 500]), max_size=4).map(tuple),
        "properties": st.none() | st.dictionaries(st.just("p"), st.just("订" * 3000), max_size=1),
        "ordering_key": st.sampled_from(["", "k" * 200]),
    }
)


def fits(message: Message) -> bool:
    properties = dict(message.properties or {})
    if message.ordering_key:
        properties["__SHARDINGKEY"] = message.ordering_key
    stored = Stored(
        "T",
        b"x",
        tag=message.tag,
        keys=message.keys,
        light_queues=message.light_queues,
        properties=properties,
    )
    try:
        prepare(stored, 0, 9, 4096)
    except InvalidArgumentError:
        return False
    return True


@example(width=10, count=5000, fields={"tag": "t" * 24})  # to the byte
@given(width=st.integers(1, 240), count=st.integers(0, 5000), fields=own)
def test_each_part_fits_and_has_as_many_as_there_is_room_for(
    width: int, count: int, fields: dict[str, object]
) -> None:
    names = tuple(f"%LMQ%{number:0{width}}" for number in range(count))
    message = replace(Message("T", b"x", light_queues=names), **fields)  # type: ignore[arg-type]
    parts = list(divided(message))
    assert tuple(chain.from_iterable(part.light_queues for part in parts)) == names
    assert all(fits(part) and replace(part, light_queues=names) == message for part in parts)
    for part, following in pairwise(parts):
        more = replace(part, light_queues=(*part.light_queues, following.light_queues[0]))
        assert not fits(more)


@pytest.mark.parametrize("names", [(), ("%LMQ%a",), ("%LMQ%a", "%LMQ%b", "%LMQ%a")])
def test_what_fits_stays_one_message(names: tuple[str, ...]) -> None:
    (part,) = divided(Message("T", b"x", light_queues=names))
    assert part.light_queues == tuple(dict.fromkeys(names))
