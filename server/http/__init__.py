"""Pages over HTTP beside gRPC, in the same event loop: each application on an address of its own.

`sites` starts and stops them, `monitoring` is what Prometheus and load balancers ask. What a page
shows is made elsewhere, and given to its application as a function. A handler may hold the loop no
longer than a call may. Without a site aiohttp is not imported: that takes a third of a start.
"""

from server.http.monitoring import OK, TOO_MANY, UNAUTHORIZED, monitoring_app
from server.http.sites import HttpSites, Site

__all__ = ["OK", "TOO_MANY", "UNAUTHORIZED", "HttpSites", "Site", "monitoring_app"]
