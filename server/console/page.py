"""A page of the console: a row of the navigation, and the handlers below its path.

To add one: a module in `pages/` with a `PAGE`, a template, a text `nav.<name>` in each catalogue,
and a row in `page_table.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from server.console.navigation import Row

if TYPE_CHECKING:
    from aiohttp import web

    from server.console.visit import Visit

#: Shows something; changes nothing.
Handler = Callable[["Visit"], Awaitable["web.StreamResponse"]]
#: Does what a form asks for, and gives the address to go on at. For administrators alone.
Action = Callable[["Visit", Mapping[str, str]], Awaitable[str]]


@dataclass(frozen=True)
class Page(Row):
    """A row of the navigation, and its handlers."""

    #: By path, `path` among them.
    shows: Mapping[str, Handler]
    #: By path, those with POST.
    does: Mapping[str, Action] = field(default_factory=dict)
