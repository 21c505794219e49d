"""What Prometheus is told of the server, and how it is gathered.

`observer` makes the text, in a thread of its own; `families` says which of the server's numbers is
which metric; `loop_watch` measures the event loop. Nothing here is imported unless metrics are
served: Prometheus' client takes a tenth of a second.
"""

from server.observe.loop_watch import LoopWatch
from server.observe.observer import Observer, Source

__all__ = ["LoopWatch", "Observer", "Source"]
