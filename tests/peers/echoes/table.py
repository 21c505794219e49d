"""The tables of echoes: what each stack does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.peers.echoes.run import METHODS
from tests.peers.spread import Spread, spread_of
from tests.peers.values import Sample, sample_of

if TYPE_CHECKING:
    from collections.abc import Callable


class Echoes:
    """The echo samples of a document."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._samples = [sample_of(one) for one in document.get("echoes", [])]
        self.pairs = list(dict.fromkeys(one.system for one in self._samples))

    def spread(self, pair: str, method: str, figure: Callable[[Sample], float]) -> Spread | None:
        """None where there are no two rounds of it."""
        found = [
            figure(one)
            for one in self._samples
            if (one.system, one.work) == (pair, method) and one.timed["count"]
        ]
        return spread_of(found) if len(found) > 1 else None

    def rate(self, pair: str, method: str) -> Spread | None:
        return self.spread(pair, method, lambda sample: sample.rate)


def rates(echoes: Echoes) -> str:
    return _table(echoes, lambda pair, method: _text(echoes.rate(pair, method)))


def processor(echoes: Echoes) -> str:
    """Server + client, us a call."""

    def cell(pair: str, method: str) -> str | None:
        server = echoes.spread(
            pair, method, lambda sample: sample.server_cpu_s / sample.timed["count"] * 1e6
        )
        client = echoes.spread(
            pair, method, lambda sample: sample.client_cpu_s / sample.timed["count"] * 1e6
        )
        return None if server is None or client is None else f"{server.text()} + {client.text()}"

    return _table(echoes, cell)


def _table(echoes: Echoes, cell: Callable[[str, str], str | None]) -> str:
    lines = []
    for pair in echoes.pairs:
        cells = [cell(pair, method) or "-" for method in METHODS]
        lines.append(f"| {pair} | " + " | ".join(cells) + " |")
    if not lines:
        return ""
    head = "| stack | " + " | ".join(METHODS.values()) + " |"
    return "\n".join([head, "|---" * (len(METHODS) + 1) + "|", *lines])


def _text(spread: Spread | None) -> str | None:
    return spread.text() if spread is not None else None
