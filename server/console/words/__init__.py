"""Texts of the console, a catalogue for each language: `en.toml`, `zh.toml`.

A key is `<table>.<name>`; all catalogues have the same keys with the same placeholders.
"""

from __future__ import annotations

import tomllib
from functools import lru_cache
from pathlib import Path

#: Code of each language, and its name in that language. The first is the default.
LANGUAGES = {"en": "English", "zh": "中文"}

__all__ = ["LANGUAGES", "Words", "language_of", "words_in"]


class Words:
    """The texts of one language."""

    def __init__(self, language: str, texts: dict[str, str]) -> None:
        self.language = language
        self.texts = texts

    def __call__(self, key: str, **values: object) -> str:
        """The text with its placeholders filled in. Raises KeyError for an unknown key."""
        return self.texts[key].format(**values)

    def has(self, key: str) -> bool:
        return key in self.texts


@lru_cache
def words_in(language: str) -> Words:
    """The catalogue of one of LANGUAGES."""
    path = Path(__file__).parent / f"{language}.toml"
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    return Words(
        language,
        {f"{table}.{key}": text for table, keys in tables.items() for key, text in keys.items()},
    )


def language_of(chosen: str | None, accepted: str) -> str:
    """The language that the viewer chose, or the one that the browser prefers.

    `accepted`: an Accept-Language header.
    """
    if chosen in LANGUAGES:
        return str(chosen)
    wanted: list[tuple[float, str]] = []
    for part in accepted.split(",")[:20]:
        tag, _, quality = part.strip().partition(";q=")
        code = tag.lower().partition("-")[0]
        try:
            weight = float(quality or 1)
        except ValueError:
            continue
        if code in LANGUAGES and weight > 0:
            wanted.append((weight, code))
    # The first of the best: max() keeps the order in which they were named.
    return max(wanted, key=lambda one: one[0])[1] if wanted else next(iter(LANGUAGES))
