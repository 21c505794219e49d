"""docs/configuration.md: its tables are those of the declarations."""

from __future__ import annotations

from docs.configuration import PAGE, page, tables
from server.settings import KNOWN


def test_the_page_has_the_settings_that_there_are() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "write it again: python -m docs.configuration"
    )


def test_each_setting_has_a_row() -> None:
    rows = tables().splitlines()
    for known in KNOWN.values():
        assert any(row.startswith(f"| `{known.key}` |") for row in rows), known.name
