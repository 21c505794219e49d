"""The rows of the navigation."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """A page as the navigation shows it."""

    name: str  # its text is `nav.<name>`
    path: str
    #: Methods of the API without which the page is left out: a server may be built without them.
    needs: tuple[str, ...]
    #: Where users sign in, for administrators alone: others have no right to what it shows.
    for_administrators: bool
