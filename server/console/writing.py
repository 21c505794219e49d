"""Templates and static files: read once, when the console is made."""

from __future__ import annotations

import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from server.console.addresses import address
from server.console.preferences import THEMES
from server.console.shown import duration, number, preview, size
from server.console.words import LANGUAGES
from server.moments import time_text

if TYPE_CHECKING:
    from server.console.words import Words

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class StaticFile:
    """Content of a file, with a digest that changes with it."""

    data: bytes
    content_type: str
    digest: str


def static_files() -> dict[str, StaticFile]:
    """All of them by name. A name that is no key is no file: no path is ever put together."""
    found = {}
    for path in sorted((_HERE / "static").iterdir()):
        data = path.read_bytes()
        kind = mimetypes.guess_type(path.name)[0] or "text/plain"
        found[path.name] = StaticFile(data, kind, hashlib.sha256(data).hexdigest()[:16])
    return found


class Writing:
    """Makes pages of templates. Everything that is put into one is escaped."""

    def __init__(self, files: dict[str, StaticFile]) -> None:
        def static(name: str) -> str:
            return f"/static/{name}?v={files[name].digest}"

        self._templates = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._templates.filters.update(
            number=number, size=size, duration=duration, time=time_text, preview=preview
        )
        self._templates.globals.update(
            static=static, address=address, languages=LANGUAGES, themes=THEMES
        )

    def page(self, template: str, words: Words, **values: object) -> str:
        """The text of a page."""
        return self._templates.get_template(template).render(
            t=words, language=words.language, **values
        )
