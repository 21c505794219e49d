"""READING.md: its picture is that of the imports, and the files it names are there."""

from __future__ import annotations

import re
from pathlib import Path

from docs.reading import PAGE, page

ROOT = Path(__file__).parent.parent.parent


def test_the_picture_is_that_of_the_imports() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "mend with: python -m docs.reading"


def test_every_file_that_is_named_is_there() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("```mermaid")
    named = set(re.findall(r"`((?:[a-z_]+/)+(?:[a-z_0-9]+\.py)?)`", text[0]))
    named |= set(re.findall(r"\]\(([^)]+)\)", text[0]))
    assert len(named) > 30
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
