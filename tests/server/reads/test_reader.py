"""server/reads/reader.py: what is short is read in the loop, and the rest is the same elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.reads.reader import (
    INLINE_BYTES,
    INLINE_DECODED_MESSAGES,
    INLINE_WHOLE_MESSAGES,
    Place,
    Wanted,
)
from store.errors import StoreError, UnknownTopicError
from store.message import Message
from tests.support.serving import serving

if TYPE_CHECKING:
    from pathlib import Path

    from server.reads.reader import QueueReader
    from tests.support.serving import Served

WHOLE, DECODED = pb.RECORD_FORM_WHOLE, pb.RECORD_FORM_DECODED
KEY = ("t", 0)
LARGE = {str(number): "x" * 100 for number in range(30)}


def fill(served: Served) -> QueueReader:
    served.store.put([Message("t", b"%d" % number, 0) for number in range(20)])
    served.store.put([Message("heavy", b"", 0, properties=LARGE) for _ in range(20)])
    return served.serving.reads._reader


def place(
    key: tuple[str, int] = KEY,
    offset: int = 0,
    form: pb.RecordForm = WHOLE,
    max_messages: int = 32,
    max_bytes: int = 1 << 20,
    *,
    in_stream: bool = False,
) -> Place:
    return Place(key, offset, max_bytes, Wanted(max_messages, None, form, in_stream, in_stream))


@pytest.mark.parametrize(
    ("one", "is_short"),
    [
        (place(), True),
        (place(max_messages=INLINE_WHOLE_MESSAGES), True),
        (place(max_messages=INLINE_WHOLE_MESSAGES + 1), False),
        (place(form=DECODED, max_messages=INLINE_DECODED_MESSAGES), True),
        (place(form=DECODED, max_messages=INLINE_DECODED_MESSAGES + 1), False),
        (place(max_bytes=INLINE_BYTES), True),
        (place(max_bytes=INLINE_BYTES + 1), False),
        (place(("heavy", 0)), True),
        (place(("heavy", 0), form=DECODED), False),
    ],
)
@pytest.mark.parametrize("in_stream", [False, True])
async def test_what_takes_long_leaves_the_loop_and_is_the_same(
    served: Served, one: Place, is_short: bool, in_stream: bool
) -> None:
    reader = fill(served)
    one = one._replace(wanted=one.wanted._replace(in_stream=in_stream))
    here = reader.read_here(one)
    assert (here is not None) == is_short
    [aside] = await reader.read_aside([one], one.max_bytes)
    assert not isinstance(aside, Exception)
    assert aside.message_count == 20
    assert await reader.read(one) == aside
    assert here in (None, aside)


async def test_what_lies_far_behind_leaves_the_loop(tmp_path: Path) -> None:
    async with serving(tmp_path / "s", store={"hot_read_bytes": 0}) as served:
        reader = fill(served)
        assert reader.takes_long(place())
        assert reader.read_here(place()) is None
        assert (await reader.read(place())).message_count == 20


async def test_one_visit_reads_within_its_bytes_and_tells_of_each_queue(served: Served) -> None:
    reader = fill(served)
    each = place(in_stream=True)
    found = await reader.read_aside([place(("none", 0)), each, each], 40)
    sizes = [one.cost_bytes for one in found if not isinstance(one, Exception)]
    assert [type(one) for one in found if isinstance(one, Exception)] == [UnknownTopicError]
    assert len(sizes) == 1, "one message fits, whatever its size"
    whole = (await reader.read(each)).cost_bytes
    found = await reader.read_aside([each] * 4, 2 * whole)
    assert [one.cost_bytes for one in found if not isinstance(one, Exception)] == [whole] * 2


@pytest.mark.parametrize("offset", [0, 1])
async def test_a_light_queue_may_begin_where_its_reader_waits(served: Served, offset: int) -> None:
    reader = fill(served)
    waits = place(("%LMQ%new", 0), offset, in_stream=True)
    if offset:
        with pytest.raises(StoreError):
            await reader.read(waits)
    else:
        assert not (await reader.read(waits)).has_news
    with pytest.raises(UnknownTopicError):
        await reader.read(place(("%LMQ%new", 0)))
