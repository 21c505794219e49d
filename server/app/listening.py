"""The gRPC server and its address."""

from __future__ import annotations

import errno
import os
import resource
import socket
from typing import TYPE_CHECKING

import grpc

from server.access import TlsFiles
from server.edge import UNREAD_BYTES
from server.errors import ServerBindError
from server.fronts import Fronts
from server.texts import address

if TYPE_CHECKING:
    from server.access import ReloadedTls
    from server.app.traces import Tracing
    from server.config import ServerConfig

#: Calls that wait for a turn of the loop, about 20 KB each: 200 MB. More than the 8,192 short calls
#: that may be in progress, so that the edge can reject a burst with an error. A client that begins
#: calls and cancels them at once (rapid reset) fills it: with 100,000 it took 2 GiB.
MAX_PENDING_CALLS = 10_000
#: How long they may wait: their callers have deadlines. After 30 s, which a loop may stand still on
#: a machine that is suspended or swaps, gRPC would cancel them.
LONGEST_PENDING_S = 24 * 3600

#: A connection without a call is closed after this long. Our client has a stream open as long as it
#: is used; others connect again with their next call.
IDLE_S = 300.0
#: From the connection to the end of the handshakes, of TLS and of HTTP/2.
HANDSHAKE_S = 10.0
#: Of all descriptors that the process may have, gRPC connections get one in this many. The rest is
#: for the store, since a flush opens files.
CONNECTIONS_SHARE = 2


def most_connections() -> int:
    """Maximum number of gRPC connections of this process; further ones are closed at once."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return descriptors // CONNECTIONS_SHARE


def rpc_options(config: ServerConfig) -> tuple[tuple[str, int], ...]:
    """gRPC options of a server or its fronts, except whether they share the port."""
    return (
        ("grpc.max_receive_message_length", config.max_receive_bytes),
        ("grpc.max_send_message_length", -1),  # PAGE_BYTES bounds what is sent
        # Above its own limits gRPC drops calls at random, as CANCELLED. So they all wait to be
        # let in, for a turn of the loop; then the edge takes them, or says why not.
        ("grpc.server.max_pending_requests", MAX_PENDING_CALLS),
        ("grpc.server.max_pending_requests_hard_limit", MAX_PENDING_CALLS),
        ("grpc.server_max_unrequested_time_in_server", LONGEST_PENDING_S),
        # How much of a request may be here before it is read; the probe would raise it.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", UNREAD_BYTES),
        # Clients that wait on a parked pull may ask whether the server still lives; gRPC's
        # own limit of one ping in 5 minutes would close their connections.
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.max_allowed_incoming_connections", most_connections()),
        ("grpc.max_connection_idle_ms", int(IDLE_S * 1000)),
        ("grpc.server_handshake_timeout_ms", int(HANDSHAKE_S * 1000)),
    )


def rpc_server(config: ServerConfig, tracing: Tracing | None) -> grpc.aio.Server:
    return grpc.aio.server(
        interceptors=() if tracing is None else (tracing.interceptor(),),
        # A second server on the port must fail, not share it.
        options=(*rpc_options(config), ("grpc.so_reuseport", 0)),
    )


def tls_files(config: ServerConfig) -> TlsFiles | None:
    """The TLS files; None without TLS."""
    if config.tls_cert is None or config.tls_key is None:
        return None
    return TlsFiles(config.tls_cert, config.tls_key, config.tls_ca)


def bind(server: grpc.aio.Server | Fronts, host: str, port: int, tls: ReloadedTls | None) -> int:
    """Bind the address; returns the port. Raises ServerBindError."""
    if isinstance(server, Fronts):
        # They have the certificate from where they were made.
        return server.hold(host, port, secured=tls is not None)
    where = address(host, port)
    try:
        if tls is None:
            bound = server.add_insecure_port(where)
        else:
            bound = server.add_secure_port(where, tls.credentials)
    except RuntimeError as error:
        raise ServerBindError(host, port, _why_not(host, port)) from error
    if bound == 0:
        raise ServerBindError(host, port, _why_not(host, port))
    return bound


def _why_not(host: str, port: int) -> OSError:
    """Why the address cannot be bound. gRPC only writes that to its log, so this tries again."""
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as gRPC does
                probe.bind(address)
                probe.listen()
    except OSError as error:
        return error
    # The port was released just now.
    return OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
