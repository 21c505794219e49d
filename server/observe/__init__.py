"""Exports metrics to Prometheus.

`observer` builds the text, in a thread of its own; `families` maps the server's statistics to
metrics; `loop_watch` measures the event loop. Nothing here is imported unless metrics are served:
Prometheus' client takes a tenth of a second to load.
"""

from server.observe.loop_watch import LoopWatch
from server.observe.observer import Observer, Source

__all__ = ["LoopWatch", "Observer", "Source"]
