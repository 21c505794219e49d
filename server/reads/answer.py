"""What a pull is answered with."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.wire import PULL_STATUS, pulled_out, whole_out

if TYPE_CHECKING:
    from server.encoded import Held
    from store.reads import Pulled


class Answer(NamedTuple):
    """The response to a pull, and what is counted of it."""

    status: pb.PullStatus
    message_count: int
    cost_bytes: int  # of its records, or of its encoded messages
    response: pb.PullResponse | bytes | Held  # bytes when it is encoded already


def answer_of(pulled: Pulled, form: pb.RecordForm, *, encode: bool) -> Answer:
    """With `encode` the response is bytes; one of whole records always is."""
    status, count = PULL_STATUS[pulled.status], len(pulled.records)
    if form == pb.RECORD_FORM_WHOLE:
        data, cost_bytes = whole_out(pulled)
        return Answer(status, count, cost_bytes, data)
    response = pb.PullResponse()
    cost_bytes = pulled_out(pulled, form, response)
    answer = response.SerializeToString() if encode else response
    return Answer(status, count, cost_bytes, answer)
