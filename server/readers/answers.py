"""One answer, made of the files of the log: in a reader process, or in a front."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.encoded import Encoded
from server.wire import pulled_out, queue_batch_out, whole_out

if TYPE_CHECKING:
    from server.readers.orders import Order
    from store.log import LogFiles


def answer(files: LogFiles, order: Order) -> Encoded | None:
    """The answer, whole; None when a record is not there, or not what its unit says."""
    try:
        return _answer(files, order)
    except Exception:  # noqa: BLE001 - the server meets it too, and knows what to do about it
        return None


def _answer(files: LogFiles, order: Order) -> Encoded | None:
    plan = order.plan
    records = files.read_all(plan.places)
    if plan.misplaced(records) is not None:
        return None
    pulled = plan.pulled(records)
    if order.in_stream:
        data, cost_bytes = queue_batch_out(plan.topic, plan.queue_id, pulled, order.form)
    elif order.form == pb.RECORD_FORM_WHOLE:
        data, cost_bytes = whole_out(pulled)
    else:
        response = pb.PullResponse()
        cost_bytes = pulled_out(pulled, order.form, response)
        data = response.SerializeToString()
    return Encoded(len(pulled.records), cost_bytes, data)
