"""The server's metrics, for `kvcq stats`, `kvcq top`, the console and Prometheus.

`calls` counts calls and what they put and pull, `traffic` does so by topic; `survey` computes the
lag of groups, `activity` does so on request. `server/observe` exports them to Prometheus.
"""

from server.metrics.activity import Activity
from server.metrics.calls import CallMetrics, CallNumbers
from server.metrics.survey import Surveyed

__all__ = ["Activity", "CallMetrics", "CallNumbers", "Surveyed"]
