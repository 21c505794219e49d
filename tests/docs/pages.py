"""The pages that lead a user, and the blocks of code in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT)
    for pattern in ("*.md", "kvcq_client/*.md", "docs/*.md", "*/docs/*.md", "deploy/**/*.md")
    for path in ROOT.glob(pattern)
)


def read(page: str | Path) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(text: str, *languages: str) -> list[str]:
    """The fenced blocks of these languages; "" is a fence that names none."""
    found = re.findall(r"^```(\S*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [block for language, block in found if language in languages]


def commands(text: str) -> list[str]:
    """What the page has a reader type into a shell, without what is behind a sign of comment.

    A block without a language has its commands behind `$`; so has a `console`.
    """
    lines = [line for block in blocks(text, "sh") for line in block.splitlines()]
    for block in blocks(text, "", "console"):
        lines += [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    return [bare for line in lines if (bare := line.partition(" #")[0].strip())]
