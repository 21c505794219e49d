"""Numbers as people read them."""

from __future__ import annotations


def number_text(value: float) -> str:
    """Grouped digits; four that count for small numbers."""
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"
