"""Pieces of the pages: tables, and the page around all. Nothing outside of it is needed."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, TypeGuard

from kvcq_bench.report.numbers import number_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem;
       color: #222 }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; max-width: 100% }
th { vertical-align: bottom }
td, th { padding: .2rem .8rem .2rem 0; text-align: left; border-bottom: 1px solid #ddd }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
.met { color: #17692f } .missed { color: #b3261e; font-weight: 600 }
.pair { display: grid; gap: 0 1rem; align-items: end }
.pair p { margin: 0; color: #555 }
.wide { max-width: 120rem }
@media (min-width: 100rem) { .pair { grid-template-columns: 1fr 1fr } }
svg { max-width: 100%; height: auto }
"""


def text(words: str) -> str:
    return html.escape(words)


def items(lines: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{text(line)}</li>" for line in lines) + "</ul>"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    kept = list(rows)
    # A column of numbers has its name at its right side too.
    numeric = [any(_is_number(row[at]) for row in kept) for at in range(len(head))]
    cells = "".join(
        f'<th class="n">{text(name)}</th>' if right else f"<th>{text(name)}</th>"
        for name, right in zip(head, numeric, strict=True)
    )
    lines = [f"<tr>{cells}</tr>"] if any(head) else []
    for row in kept:
        cells = "".join(map(_cell, row))
        lines.append(f"<tr>{cells}</tr>")
    return f"<table>{''.join(lines)}</table>"


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: object) -> str:
    if _is_number(value):
        return f'<td class="n">{number_text(value)}</td>'
    words = text(str(value))
    return (
        f'<td class="{words}">{words}</td>' if words in ("met", "missed") else f"<td>{words}</td>"
    )


def whole_page(title: str, parts: Sequence[str], kind: str = "") -> str:
    head = f'<meta charset="utf-8"><title>{text(title)}</title><style>{_STYLE}</style>'
    body = f'<body class="{kind}">{"".join(parts)}</body>'
    return f'<!doctype html><html lang="en"><head>{head}</head>{body}</html>\n'
