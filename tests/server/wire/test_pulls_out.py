"""Answers that are encoded by hand, against those that protobuf makes."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.wire import Encoded, encode_pull
from store.format import Records
from store.message import PullStatus
from store.reads import Pulled

offsets = st.integers(0, (1 << 63) - 1)
STATUS = {
    PullStatus.FOUND: pb.PULL_STATUS_FOUND,
    PullStatus.NO_NEW_MESSAGE: pb.PULL_STATUS_NO_NEW_MESSAGE,
    PullStatus.NO_MATCH: pb.PULL_STATUS_NO_MATCH,
}


@st.composite
def pulls(draw: st.DrawFn) -> Pulled:
    records = draw(st.lists(st.binary(min_size=1, max_size=300), max_size=20))
    return Pulled(
        draw(st.sampled_from(PullStatus)),
        Records.back_to_back(b"".join(records), list(accumulate(map(len, records))))
        if draw(st.booleans())
        else Records(records),
        [draw(offsets) for _ in records],
        draw(offsets),
        draw(offsets),
        draw(offsets),
        draw(st.none() | offsets),
    )


def fill(response: pb.PullResponse, pulled: Pulled) -> pb.PullResponse:
    response.status = STATUS[pulled.status]
    response.next_offset = pulled.next_offset
    response.min_offset = pulled.min_offset
    response.max_offset = pulled.max_offset
    if pulled.given_at is not None:
        response.given_at = pulled.given_at
    response.records = b"".join(pulled.records)
    response.queue_offsets.extend(pulled.queue_offsets)
    return response


def figures(found: Encoded) -> tuple[object, ...]:
    """All that is not its data."""
    return found[:-1]


def figures_of(pulled: Pulled) -> tuple[object, ...]:
    has_news = pulled.status is not PullStatus.NO_NEW_MESSAGE
    count, size = len(pulled.records), sum(map(len, pulled.records))
    return has_news, pulled.next_offset, pulled.max_offset, pulled.given_at, count, size


@given(pulls())
def test_whole_records_are_the_answer_that_protobuf_makes(pulled: Pulled) -> None:
    plain = fill(pb.PullResponse(), pulled)
    found = encode_pull(pulled, pb.RECORD_FORM_WHOLE)
    assert pb.PullResponse.FromString(found.data) == plain
    assert len(found.data) == plain.ByteSize()
    assert figures(found) == figures_of(pulled)
    # The client takes them from there without a look at what is before them.
    assert found.data.endswith(b"".join(pulled.records))


@given(
    st.lists(st.tuples(st.text("abé", max_size=3), st.integers(0, 1 << 20), pulls()), max_size=3)
)
def test_batches_are_the_response_that_protobuf_makes(given: list[tuple[str, int, Pulled]]) -> None:
    plain = pb.SubscribeResponse()
    encoded = b""
    for topic, queue_id, pulled in given:
        fill(plain.queues.add(topic=topic, queue_id=queue_id).batch, pulled)
        found = encode_pull(pulled, pb.RECORD_FORM_WHOLE, (topic, queue_id))
        encoded += found.data  # one after another they are one response
        assert figures(found) == figures_of(pulled)
    assert pb.SubscribeResponse.FromString(encoded) == plain
    assert len(encoded) == plain.ByteSize()
