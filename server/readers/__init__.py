"""Reader processes: they read far behind the end of the log, for the process that serves it.

A cold read occupies an interpreter while it verifies, joins and encodes records; in the server that
would take time from its producers. So the server only decides which records a pull returns, from
the units of the queue (`store.reads.pull_plan`). A reader process reads them from the log's files,
verifies them as the server would, and encodes the response. `readers.py` is the server's side,
`process.py` the other, `orders.py` the protocol between them.

A reader returns everything that was planned, or nothing. If a record is missing, or does not
verify, the server reads it itself, since it knows what was dropped meanwhile and can repair. The
same happens if a reader dies. docs/cold-reads.md has the reasons.
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
