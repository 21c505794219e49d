"""Puts over TLS by a user with rights, beside the same on a server with neither, in turns."""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from kvcq_client import TLS, AsyncClient, Client, Credentials, Message
from tests.benchmarks.measure import BODY_BYTES, Row
from tests.support.certificates import Authority
from tests.support.server_process import ServerProcess
from tests.support.users import add_users, secret_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.benchmarks.measure import Bench

_IN_FLIGHT = 64
_SEGMENT = ("--set", "store.segment_bytes=67108864")
_WANTED = {"batches": 0.7, "single": 0.6}


def secured_puts(bench: Bench) -> None:
    """A producer's batches, and single puts, of 1 KiB."""
    directory = bench.fresh("security")
    with ExitStack() as servers:
        ways = [_plain(directory, servers), _secured(directory, servers)]
        body = os.urandom(BODY_BYTES)
        for work, words, count in (
            (_batches, "through the client's producer", bench.amount(200_000, 2_000)),
            (_singles, f"singly, {_IN_FLIGHT} in flight", bench.amount(15_000, 200)),
        ):
            plain, secured = bench.in_turn(*(_bound(work, way, body, count) for way in ways))
            wanted = _WANTED["batches" if work is _batches else "single"]
            bench.rows.append(
                Row(
                    f"put 1 KiB {words}, with TLS, signed, rights checked",
                    secured,
                    "messages/s",
                    f"{wanted} of the same without",
                    secured >= wanted * plain,
                    plain,
                    "the same without",
                )
            )


def _plain(directory: Path, servers: ExitStack) -> dict[str, Any]:
    server = servers.enter_context(ServerProcess(directory / "plain", *_SEGMENT))
    server.wait_for("ready")
    return {"target": server.target}


def _secured(directory: Path, servers: ExitStack) -> dict[str, Any]:
    authority = Authority(directory / "pki")
    cert, key = authority.issue()
    add_users(directory / "secured", {"app": ["publish topic bench*"]}, segment_bytes=1 << 26)
    flags = ("--access", "--tls-cert", str(cert), "--tls-key", str(key))
    server = servers.enter_context(ServerProcess(directory / "secured", *_SEGMENT, *flags))
    server.wait_for("ready")
    credentials = Credentials("app", secret_of("app"))
    return {"target": server.target, "tls": TLS(ca=authority.ca), "credentials": credentials}


def _bound(
    work: Callable[[dict[str, Any], bytes, int], None], way: dict[str, Any], body: bytes, count: int
) -> Callable[[], int]:
    def run() -> int:
        work(way, body, count)
        return count

    return run


def _batches(way: dict[str, Any], body: bytes, count: int) -> None:
    with Client(**way, timeout_s=120.0) as client, client.producer() as producer:
        send = producer.send
        for _ in range(count):
            send("bench", body)
        producer.flush()


def _singles(way: dict[str, Any], body: bytes, count: int) -> None:
    async def work(client: AsyncClient, first: int) -> None:
        for _ in range(first, count, _IN_FLIGHT):
            await client.put(Message("bench", body))

    async def all_of_it() -> None:
        async with AsyncClient(**way, timeout_s=120.0) as client:
            await asyncio.gather(*(work(client, first) for first in range(_IN_FLIGHT)))

    asyncio.run(all_of_it())
