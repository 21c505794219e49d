"""Answers that are encoded by hand, against those that protobuf makes."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.wire import pulled_out, queue_batch_out, whole_out
from store.format import Records
from store.message import PullStatus
from store.reads import Pulled

offsets = st.integers(0, (1 << 63) - 1)


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
    )


@given(pulls())
def test_whole_records_are_the_answer_that_protobuf_makes(pulled: Pulled) -> None:
    plain = pb.PullResponse()
    plain_bytes = pulled_out(pulled, pb.RECORD_FORM_WHOLE, plain)
    data, record_bytes = whole_out(pulled)
    assert pb.PullResponse.FromString(data) == plain
    assert len(data) == plain.ByteSize()
    assert record_bytes == plain_bytes
    # The client takes them from there without a look at what is before them.
    assert data.endswith(b"".join(pulled.records))


@given(
    st.lists(st.tuples(st.text("abé", max_size=3), st.integers(0, 1 << 20), pulls()), max_size=3)
)
def test_batches_are_the_response_that_protobuf_makes(found: list[tuple[str, int, Pulled]]) -> None:
    plain = pb.SubscribeResponse()
    encoded = b""
    for topic, queue_id, pulled in found:
        batch = plain.queues.add(topic=topic, queue_id=queue_id).batch
        plain_bytes = pulled_out(pulled, pb.RECORD_FORM_WHOLE, batch)
        data, record_bytes = queue_batch_out(topic, queue_id, pulled, pb.RECORD_FORM_WHOLE)
        encoded += data  # one after another they are one response
        assert record_bytes == plain_bytes
    assert pb.SubscribeResponse.FromString(encoded) == plain
    assert len(encoded) == plain.ByteSize()
