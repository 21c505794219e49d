"""The rows of the navigation."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """A page in the navigation."""

    name: str  # its text is `nav.<name>`
    path: str
    #: Methods of the API without which the page is left out: a server may be built without them.
    needs: tuple[str, ...] = field(default=(), kw_only=True)
    #: With users, only for administrators, because other users may not see its content.
    for_administrators: bool = field(default=False, kw_only=True)
