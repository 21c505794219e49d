"""Decides which servers are connected to without the web proxy of the environment.

gRPC uses `http_proxy`, `https_proxy` and `grpc_proxy` for every server, including one on this
machine, and only reads `no_proxy` in lower case. On most machines these are set for browsers and
package managers, and the proxy cannot reach a local server.
"""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The channel argument that turns proxies off.
DIRECT = ("grpc.enable_http_proxy", 0)

_HOST = re.compile(r"(?:dns:(?:///?[^/]*/)?|ipv[46]:)?(?:\[([^\]]+)\]|([^\s/:\]]+))(?::\d{1,5})?")


def is_direct(target: str, environment: Mapping[str, str]) -> bool:
    """Whether the target is on this machine, or excluded by `NO_PROXY`.

    `no_proxy` and `no_grpc_proxy` in lower case take precedence, and gRPC reads them itself.
    """
    found = _HOST.fullmatch(target)
    if found is None:
        return False  # such as unix:/run/kvcq.sock, which needs no proxy
    host = (found[1] or found[2]).lower().rstrip(".")
    if _is_loopback(host):
        return True
    if "no_proxy" in environment or "no_grpc_proxy" in environment:
        return False
    return any(_covers(each.strip().lower(), host) for each in _entries(environment))


def _entries(environment: Mapping[str, str]) -> list[str]:
    return environment.get("NO_PROXY", "").split(",")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _covers(entry: str, host: str) -> bool:
    """Whether the pattern matches: `*`, a name, a suffix, an address, or a network (10.0.0.0/8)."""
    if entry == "*":
        return True
    try:
        return ip_address(host) in ip_network(entry, strict=False)
    except ValueError:
        name = entry.removeprefix("*").strip(".")
        return bool(name) and (host == name or host.endswith(f".{name}"))
