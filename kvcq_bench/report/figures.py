"""Figures of a document: their names as people read them, and those of several cases as tables.

A figure is named `put_messages_per_s part 1 of 6`: what was measured with its unit, then the case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The end of a name, and what stands for it.
_UNITS = {
    "_mb_per_s": ", MB/s",
    "_mb_per_hour": ", MB/hour",
    "_per_hour": "/hour",
    "_per_s": "/s",
    "_mb": ", MB",
    "_ms": ", ms",
    "_s": ", s",
    "_bytes": ", bytes",
    "_bytes_a_queue": ", bytes a queue",
}


class Table(NamedTuple):
    """Figures that have the same cases; `cases` is [""] for those that have none."""

    cases: list[str]
    rows: dict[str, list[float]]  # by what was measured, in words


def tables(figures: Mapping[str, float]) -> list[Table]:
    """All figures: first the table of those without cases, then one for each set of cases."""
    by_what: dict[str, dict[str, float]] = {}
    for name, value in figures.items():
        what, _, case = name.partition(" ")
        by_what.setdefault(what, {})[case] = value
    single = Table([""], {})
    found: dict[tuple[str, ...], Table] = {}
    for what, by_case in by_what.items():
        if len(by_case) == 1:
            ((case, value),) = by_case.items()
            single.rows[f"{in_words(what)} {case}".rstrip()] = [value]
        else:
            table = found.setdefault(tuple(by_case), Table(list(by_case), {}))
            table.rows[in_words(what)] = list(by_case.values())
    return [*([single] if single.rows else []), *found.values()]


def in_words(what: str) -> str:
    """The name of what was measured, with its unit written as usual."""
    for end in sorted(_UNITS, key=len, reverse=True):
        if what.endswith(end):
            return what.removesuffix(end).replace("_", " ") + _UNITS[end]
    return what.replace("_", " ")


def with_latencies(document: Mapping[str, Any]) -> dict[str, float]:
    """Figures, and median and p99 of each latency under `NAME p50_ms` and `NAME p99_ms`."""
    found = dict(document["figures"])
    for name, summary in document.get("latencies", {}).items():
        for share in ("p50_ms", "p99_ms"):
            if share in summary:
                found[f"{name} {share}"] = summary[share]
    return found
