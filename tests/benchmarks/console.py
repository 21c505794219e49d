"""The console's page of topics, with a million of them; server and browser in one process.

Beside the time from request to answer stands the processor time, which does not tell how long the
machine let the process wait for a processor.
"""

from __future__ import annotations

import asyncio
from time import perf_counter, process_time
from typing import TYPE_CHECKING

import aiohttp

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from tests.benchmarks.measure import Row
from tests.support.serving import serving

if TYPE_CHECKING:
    from tests.benchmarks.measure import Bench
    from tests.support.serving import Served

TOPICS = 1_000_000
_AT_ONCE = 10_000
_REQUESTS = 100
_WANTED_MS = 100.0
_WANTED_CPU_MS = 15.0


def topic_page(bench: Bench) -> None:
    """Pages from the beginning, the middle and the end, and by prefix, in turns."""
    asyncio.run(_topic_page(bench))


async def _topic_page(bench: Bench) -> None:
    topics = bench.amount(TOPICS)
    async with serving(bench.fresh("console"), damaged=True, console_port=0) as served:
        for begin in range(0, topics, _AT_ONCE):
            names = (_name(number) for number in range(begin, min(topics, begin + _AT_ONCE)))
            wanted = [pb.CreateTopicRequest(name=name, queue_count=8) for name in names]
            await served.topics.CreateTopics(pb.CreateTopicsRequest(topics=wanted))
        half = _name(topics // 2)
        paths = [
            "/topics",
            f"/topics?after={half}",
            f"/topics?prefix={half[:-4]}",
            f"/topics?after={_name(topics - 60)}",
            "/topics?prefix=none",
        ]
        taken = await _times_ms(served, paths * max(1, bench.amount(_REQUESTS) // 5))
    kinds = (("", _WANTED_MS), (", processor time", _WANTED_CPU_MS))
    for (kind, limit_ms), times in zip(kinds, zip(*taken, strict=True), strict=True):
        times_ms = sorted(times)
        for share, name in ((0.5, "median"), (0.95, "95th percentile")):
            value = times_ms[min(len(times_ms) - 1, int(len(times_ms) * share))]
            bench.rows.append(
                Row(
                    f"console's page of topics, of {topics:,}{kind}, {name}",
                    value,
                    "ms",
                    f"below {limit_ms:g} ms",
                    value < limit_ms,
                )
            )


async def _times_ms(served: Served, paths: list[str]) -> list[tuple[float, float]]:
    """From the request to the whole answer, of each: by the clock, and of the processor."""
    origin = f"http://127.0.0.1:{served.server.sites.ports['console']}"
    found = []
    async with aiohttp.ClientSession() as browser:
        for path in paths:
            began_s, cpu_s = perf_counter(), process_time()
            async with browser.get(origin + path) as answer:
                assert answer.status == 200
                await answer.read()
            found.append((1000 * (perf_counter() - began_s), 1000 * (process_time() - cpu_s)))
    return found


def _name(number: int) -> str:
    return f"topic-{number:07}"
