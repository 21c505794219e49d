"""Templates and static files: loaded once, when a console is created."""

from __future__ import annotations

import hashlib
import mimetypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from server.console.addresses import address
from server.console.preferences import THEMES
from server.console.shown import number, preview
from server.console.words import LANGUAGES
from server.moments import time_text
from server.texts import byte_count, duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from server.console.words import Words

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file's content, with a digest for cache busting."""

    data: bytes
    content_type: str
    digest: str


@cache
def static_files() -> Mapping[str, StaticFile]:
    """All static files by name. Only these names are served; no path is ever built from a
    request."""
    found = {}
    for path in sorted((_HERE / "static").iterdir()):
        data = path.read_bytes()
        kind = mimetypes.guess_type(path.name)[0] or "text/plain"
        found[path.name] = StaticFile(data, kind, hashlib.sha256(data).hexdigest()[:16])
    return found


def _static(name: str) -> str:
    return f"/static/{name}?v={static_files()[name].digest}"


@cache
def templates() -> Environment:
    """All templates, compiled; that takes a tenth of a second, too long for a request.

    All inserted values are escaped.
    """
    found = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.filters.update(
        number=number, size=byte_count, duration=duration, time=time_text, preview=preview
    )
    found.globals.update(static=_static, address=address, languages=LANGUAGES, themes=THEMES)
    for name in found.list_templates():
        found.get_template(name)
    return found


def page(template: str, words: Words, **values: object) -> str:
    """Render a page."""
    return templates().get_template(template).render(t=words, language=words.language, **values)
