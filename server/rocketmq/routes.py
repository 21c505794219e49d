"""Routes for clients: all queues are on this server, at the address that the client used."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from server.errors import ClientStatusError
from server.rocketmq.pb import values_pb2 as v2

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Name and id of the only broker. The id says that it is not a replica.
_BROKER, _MASTER = "kvcq", 0
#: Queue id of a route that means any queue.
ANY_QUEUE = -1


def broker_of(asked: v2.Endpoints, advertised: v2.Endpoints | None) -> v2.Broker:
    """This server, at the advertised address, or else at the one in the request.

    Raises ClientStatusError if neither is known.
    """
    endpoints = asked if advertised is None else advertised
    if not endpoints.addresses:
        raise ClientStatusError(
            v2.ILLEGAL_ACCESS_POINT, "the request names no endpoints to answer with"
        )
    return v2.Broker(name=_BROKER, id=_MASTER, endpoints=endpoints)


def queues_out(
    topic: v2.Resource, ids: Iterable[int], broker: v2.Broker, types: Sequence[v2.MessageType]
) -> list[v2.MessageQueue]:
    return [
        v2.MessageQueue(
            topic=topic,
            id=each,
            permission=v2.READ_WRITE,
            broker=broker,
            accept_message_types=types,
        )
        for each in ids
    ]


def endpoints_of(address: tuple[str, int] | None) -> v2.Endpoints | None:
    """Endpoints with this host and port; None for None."""
    if address is None:
        return None
    host, port = address
    try:
        scheme = v2.IPv4 if ipaddress.ip_address(host).version == 4 else v2.IPv6
    except ValueError:
        scheme = v2.DOMAIN_NAME
    return v2.Endpoints(scheme=scheme, addresses=[v2.Address(host=host, port=port)])
