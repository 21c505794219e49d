"""A reader process: `python -m server.readers.process COMMITLOG SEGMENT_BYTES IDLE_S`.

Orders come in on its standard input, which is a socket, and answers go back by it. It ends with
the server, and when nothing was asked of it for `IDLE_S`.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.transport import keep_freed_memory
from server.readers.orders import (
    READY,
    Encoded,
    LinkEndedError,
    Order,
    receive_order,
    send_answer,
    set_patience,
)
from server.wire import pulled_out, whole_out
from store.log import LogFiles


def answer(files: LogFiles, order: Order) -> Encoded | None:
    """The answer, whole; None when a record is not there, or not what its unit says."""
    plan = order.plan
    try:
        records = files.read_all(plan.places)
    except Exception:  # noqa: BLE001 - the server meets it too, and knows what to do about it
        return None
    if plan.misplaced(records) is not None:
        return None
    pulled = plan.pulled(records)
    if order.form == pb.RECORD_FORM_WHOLE and not order.in_stream:
        data, cost_bytes = whole_out(pulled)
        return Encoded(len(pulled.records), cost_bytes, data)
    response: pb.PullResponse | pb.SubscribeResponse
    if order.in_stream:
        response = pb.SubscribeResponse()
        batch = response.queues.add(topic=plan.topic, queue_id=plan.queue_id)
        cost_bytes = pulled_out(pulled, order.form, batch.batch)
    else:
        response = pb.PullResponse()
        cost_bytes = pulled_out(pulled, order.form, response)
    return Encoded(len(pulled.records), cost_bytes, response.SerializeToString())


def main(directory: str, segment_bytes: str, idle_s: str) -> None:
    # What ends the server ends it in its own time: it drains first.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    keep_freed_memory()
    files = LogFiles(Path(directory), int(segment_bytes))
    with socket.socket(fileno=os.dup(0)) as link, suppress(LinkEndedError, OSError):
        set_patience(link, float(idle_s))
        link.sendall(READY)
        while True:
            send_answer(link, answer(files, receive_order(link)))


if __name__ == "__main__":
    main(*sys.argv[1:])
