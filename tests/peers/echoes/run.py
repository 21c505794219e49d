"""Each pair of an echo server and an echo client, in turns."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from kvcq_client.transport.grpc_environment import ENVIRONMENT
from tests.peers.child import Child
from tests.peers.client import command_of
from tests.peers.echoes.clients import (
    EchoClient,
    GrpcEcho,
    GrpcEchoWithoutUvloop,
    GrpclibEcho,
    PyqwestEcho,
    TcpEcho,
)
from tests.peers.processes import (
    ServerProcess,
    connects,
    free_port,
    machine_cpu_s,
    plain_environment,
    used_by,
    wait_until,
)
from tests.peers.values import Durability, NotOfferedError, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.peers.turns import Found

METHODS = {
    "unary_blocking": "unary, blocking",
    "unary_asyncio": "unary, asyncio",
    "unary_64": "unary, 64 in flight",
    "stream_blocking": "one stream, blocking",
    "stream_asyncio": "one stream, asyncio",
}
_LIMIT_S = 0.8
_WARM_UP_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Pair:
    server: str
    client: type[EchoClient]
    title: str
    #: Of PyPI, where it is not what the product needs anyway.
    package: str = ""
    #: Whether gRPC waits for sockets as it is told to by our client; else as it does by itself.
    told: bool = False


OURS = Pair("grpc.aio+uvloop", GrpcEcho, "grpc.aio on uvloop", told=True)
PAIRS = [
    OURS,
    Pair("grpc.aio+uvloop", GrpcEcho, "grpc.aio on uvloop, as gRPC comes"),
    Pair("grpc.aio", GrpcEchoWithoutUvloop, "grpc.aio on asyncio's loop"),
    Pair("grpc threads", GrpcEcho, "thread server of grpcio"),
    Pair("grpclib+uvloop", GrpcEcho, "grpclib on uvloop", "grpclib"),
    Pair("grpclib", GrpcEchoWithoutUvloop, "grpclib on asyncio's loop", "grpclib"),
    Pair("pyvoy", GrpcEcho, "pyvoy (Envoy)", "pyvoy"),
    Pair("grpc.aio+uvloop", GrpclibEcho, "grpc.aio on uvloop; client: grpclib", "grpclib"),
    Pair("grpc.aio+uvloop", PyqwestEcho, "grpc.aio on uvloop; client: pyqwest (hyper)", "pyqwest"),
    Pair("pyvoy", PyqwestEcho, "pyvoy (Envoy); client: pyqwest (hyper)", "pyvoy"),
    Pair("tcp+uvloop", TcpEcho, "plain TCP on uvloop, no HTTP/2, no gRPC"),
]


def installed_pairs(found: Found, pairs: Sequence[Pair] = PAIRS) -> list[Pair]:
    """Those that can be measured; the others are noted with how to install them."""
    there = []
    for pair in pairs:
        if pair.package and find_spec(pair.package) is None:
            found.left_out[pair.package] = (
                f"{pair.package} is not installed: pip install '.[peers]'"
            )
        else:
            there.append(pair)
    return there


def echo(
    pair: Pair,
    number: int,
    directory: Path,
    found: Found,
    scale: float,
    say: Callable[[str], None],
) -> None:
    """One round of one pair. What fails is noted: the run ends with an error."""
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    say(f"echo: {pair.title}")
    command = [sys.executable, "-m", "tests.peers.echoes.server", pair.server, str(port)]
    address = f"127.0.0.1:{port}"
    environment = plain_environment() | (ENVIRONMENT if pair.told else {})
    try:
        with ServerProcess(command, directory / "server.log", environment) as server:
            wait_until(lambda: connects(port), server)
            client = command_of(pair.client, address, Durability.BEFORE_FSYNC)
            with Child(client, directory / "client.log", environment) as child:
                for method in METHODS:
                    try:
                        _measure(pair, method, number, found, server, child, scale)
                    except NotOfferedError:
                        continue
    except Exception as error:  # noqa: BLE001 - the other pairs are measured all the same
        say(str(error))
        end = str(error).strip().rpartition("\n")[2]
        found.failures.append(f"echo, {pair.title}, round {number + 1}: {end}")


def _measure(
    pair: Pair,
    method: str,
    number: int,
    found: Found,
    server: ServerProcess,
    child: Child,
    scale: float,
) -> None:
    limit_s = max(0.05, _LIMIT_S * min(1.0, scale))
    child.run(method, limit_s=limit_s * _WARM_UP_SHARE)
    before, client_before = used_by([server.pid]), used_by([child.pid])
    machine_s = machine_cpu_s()
    timed = child.run(method, limit_s=limit_s)
    machine_s = machine_cpu_s() - machine_s
    after, client_after = used_by([server.pid]), used_by([child.pid])
    found.echoes.append(
        Sample(
            pair.title,
            method,
            "",
            "",
            number,
            timed.document(),
            client_after.cpu_s - client_before.cpu_s,
            after.cpu_s - before.cpu_s,
            machine_s,
        )
    )
