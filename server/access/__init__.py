"""Who may do what: TLS, users and their secrets, signatures, rights, limits, and the audit of it.

Of the store it knows the metadata alone. `server.wire` asks it for each call, and it asks nobody.
"""

from server.access.tls import ReloadedTls, TlsFiles
from server.access.web_tls import http_tls

__all__ = [
    "ReloadedTls",
    "TlsFiles",
    "http_tls",
]
