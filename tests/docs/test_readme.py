"""README.md in its two languages."""

from __future__ import annotations

import ast
import re

from tests.docs.pages import blocks, read

ENGLISH, CHINESE = read("README.md"), read("README.zh.md")


def _shown(text: str) -> list[str]:
    """Code and diagrams as they are typed: without comments, in their order."""
    without = [re.sub(r"\s+# .*", "", block) for block in blocks(text, "")]
    return without + [ast.unparse(ast.parse(block)) for block in blocks(text, "python")]


def test_both_languages_have_the_same_code_links_and_sections() -> None:
    assert _shown(ENGLISH) == _shown(CHINESE)
    for pattern in (r"^#+ ", r"\]\(([^)]*)\)", r"^\| .*? \|", r"\d[\d,.]+"):
        english, chinese = (re.findall(pattern, text, re.MULTILINE) for text in (ENGLISH, CHINESE))
        assert len(english) == len(chinese), pattern
