"""Processes that read far behind the end of the log, beside the one that serves it.

A cold read takes an interpreter for as long as it verifies, joins and encodes what it read; in the
server that time is its producers'. So the server only decides which records a pull gives, from the
units of the queue (`store.reads.pull_plan`), and a reader process reads them from the files of the
log, verifies them as the server would, and encodes the answer. `readers.py` is the server's side,
`process.py` the other one, `orders.py` what passes between them.

A reader gives all that was planned, or nothing. Whatever is not there, or does not verify, the
server reads itself: it knows what was dropped meanwhile, and repairs. A reader that dies costs the
same. docs/cold-reads.md has the reasons.
"""

from server.readers.answers import answer
from server.readers.orders import LogPlace, Order
from server.readers.readers import LEAST_BYTES, Readers

__all__ = [
    "LEAST_BYTES",
    "LogPlace",
    "Order",
    "Readers",
    "answer",
]
