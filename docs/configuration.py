"""Writes the tables of settings into docs/configuration.md, from their declarations.

    python -m docs.configuration

A test tells when it was forgotten.
"""

from __future__ import annotations

from pathlib import Path

from server.settings import KNOWN, Known, toml_value

PAGE = Path(__file__).parent / "configuration.md"
BEGIN = "<!-- generated: python -m docs.configuration -->"
END = "<!-- end of what is generated -->"
_COLUMNS = ("setting", "default", "meaning", "bounds", "changes", "RocketMQ")


def tables() -> str:
    """A table for each table of the file."""
    parts: list[str] = []
    for table in dict.fromkeys(known.table for known in KNOWN.values()):
        rows = [_row(known) for known in KNOWN.values() if known.table == table]
        lines = [f"### [{table}]", "", _line(_COLUMNS), _line(["---"] * len(_COLUMNS))]
        parts.append("\n".join([*lines, *map(_line, rows)]))
    return "\n\n".join(parts)


def page() -> str:
    """The page with the tables as they should be."""
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{head}{BEGIN}\n\n{tables()}\n\n{END}{rest.partition(END)[2]}"


def _row(known: Known) -> list[str]:
    default = toml_value(known.default)
    theirs = known.about.rocketmq
    bounds = known.about.bounds
    return [
        f"`{known.key}`",
        f"`{default}`" if default else "",
        known.about.meaning,
        "" if bounds is None else f"{_number(bounds[0])} to {_number(bounds[1])}",
        "on reload" if known.about.live else "at a start",
        f"`{theirs}`" if theirs else "",
    ]


def _number(bound: float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:f}".rstrip("0").rstrip(".")


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
