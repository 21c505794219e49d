"""What a server's pages answer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import aiohttp

if TYPE_CHECKING:
    from tests.support.serving import Served

_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
#: Of every metric with RocketMQ's name.
_NODE = ("cluster", "node_type", "node_id")


def url_of(served: Served, path: str, site: str = "metrics") -> str:
    return f"http://127.0.0.1:{served.server.sites.ports[site]}{path}"


async def get(served: Served, path: str) -> tuple[int, str]:
    """Status and text of a page of the monitoring site."""
    async with aiohttp.ClientSession() as session, session.get(url_of(served, path)) as answer:
        return answer.status, await answer.text()


class Samples:
    """What /metrics said, by name and labels; those of the node are left out."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._values: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for name, labels, value in _SAMPLE.findall(text):
            own = frozenset(pair for pair in _LABEL.findall(labels) if pair[0] not in _NODE)
            assert (name, own) not in self._values, f"{name} {labels} is there twice"
            self._values[name, own] = float(value)

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self._values}

    def get(self, name: str, **labels: str) -> float | None:
        return self._values.get((name, frozenset(labels.items())))

    def all(self, name: str) -> dict[frozenset[tuple[str, str]], float]:
        return {labels: value for (each, labels), value in self._values.items() if each == name}


async def scrape(served: Served) -> Samples:
    status, text = await get(served, "/metrics")
    assert status == 200
    return Samples(text)
