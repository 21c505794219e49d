"""HTTP beside gRPC, in the same event loop: each application on an address of its own.

`sites` starts and stops them, `monitoring` serves Prometheus and load balancers. The content is
produced elsewhere, and passed to the application as a function. A handler must not hold the loop
for longer than a call may. Without a site aiohttp is not imported, which takes a third of a start.
"""

from server.http.monitoring import OK, TOO_MANY, UNAUTHORIZED, monitoring_app
from server.http.sites import HttpSites, Site

__all__ = ["OK", "TOO_MANY", "UNAUTHORIZED", "HttpSites", "Site", "monitoring_app"]
