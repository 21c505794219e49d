"""The console's page of topics, with a million of them."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING

import aiohttp

from kvcq_bench.report import Goal
from kvcq_client import Client
from tests.benchmarks.timing import Timed
from tests.benchmarks.work import Work

if TYPE_CHECKING:
    from tests.benchmarks.systems.in_process import ConsoleClient

_PAGE = "the console's page of topics, a million of them"
_REQUESTS = 100

PAGE = Work(
    _PAGE,
    "pages/s",
    "console_page",
    {"count": 1_000_000},
    [Goal(_PAGE, 100, "a page should appear at once", "p99", at_most=True, system="kvcq-console")],
    warm_up=False,
)


@PAGE.of("kvcq-console")
def _(client: ConsoleClient, count: int) -> Timed:
    """Pages from the beginning, the middle and the end, and by prefix, in turns."""
    with Client(client.address, timeout_s=120.0) as topics:
        for begin in range(0, count, 10_000):
            names = range(begin, min(count, begin + 10_000))
            topics.create_topics({_name(number): 8 for number in names})
    half = _name(count // 2)
    queries = (
        *("", f"?after={half}", f"?prefix={half[:-4]}"),
        *(f"?after={_name(count - 60)}", "?prefix=none"),
    )
    urls = [f"http://127.0.0.1:{client.port}/topics{query}" for query in queries]
    return asyncio.run(_asked(urls * (_REQUESTS // len(urls))))


async def _asked(urls: list[str]) -> Timed:
    calls: list[float] = []
    began_s = perf_counter()
    async with aiohttp.ClientSession() as browser:
        for url in urls:
            asked_s = perf_counter()
            async with browser.get(url) as answer:
                if answer.status != 200:
                    raise RuntimeError(f"{url}: {answer.status}")
                await answer.read()
            calls.append(perf_counter() - asked_s)
    return Timed.of_calls(calls, perf_counter() - began_s)


def _name(number: int) -> str:
    return f"topic-{number:07}"
