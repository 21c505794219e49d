"""A viewer's preferences: language and theme, each in a cookie."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.console.words import LANGUAGES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

#: `auto`: as the viewer's system has it.
THEMES = ("auto", "light", "dark")
LANGUAGE_COOKIE = "kvcq_language"
THEME_COOKIE = "kvcq_theme"

#: Form field, cookie, and possible values.
CHOICES: tuple[tuple[str, str, Collection[str]], ...] = (
    ("language", LANGUAGE_COOKIE, LANGUAGES),
    ("theme", THEME_COOKIE, THEMES),
)


def theme_of(cookies: Mapping[str, str]) -> str:
    """The theme in the cookies, one of THEMES; by default the first."""
    chosen = cookies.get(THEME_COOKIE, "")
    return chosen if chosen in THEMES else THEMES[0]
