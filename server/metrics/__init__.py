"""The server's own numbers, for whoever asks: `kvcq stats`, `kvcq top`, the console, Prometheus.

`calls` counts what calls cost and what they put and pull, `traffic` does so by topic; `survey`
finds how far groups are behind, `activity` does that for whoever asks. What Prometheus is told of
them is in `server/observe`.
"""

from server.metrics.activity import Activity
from server.metrics.calls import CallMetrics, CallNumbers
from server.metrics.survey import Surveyed

__all__ = ["Activity", "CallMetrics", "CallNumbers", "Surveyed"]
