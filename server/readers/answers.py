"""Builds one response from the log's files, in a reader process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.wire import encode_pull

if TYPE_CHECKING:
    from server.readers.orders import Order
    from server.wire import Encoded
    from store.log import LogFiles


def answer(files: LogFiles, order: Order) -> Encoded | None:
    """The complete response; None if a record is missing, or does not match its unit."""
    plan = order.plan
    try:
        records = files.read_all(plan.places)
        if plan.misplaced(records) is not None:
            return None
        batch_of = (plan.topic, plan.queue_id) if order.in_stream else None
        return encode_pull(plan.pulled(records), order.form, batch_of)
    except Exception:  # noqa: BLE001 - the server meets it too, and knows what to do about it
        return None
