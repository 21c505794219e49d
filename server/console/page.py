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
#: Executes a form, and returns the address of the next page. Only for administrators.
Action = Callable[["Visit", Mapping[str, str]], Awaitable[str]]


@dataclass(frozen=True)
class Page(Row):
    """A row of the navigation, and its handlers."""

    #: Handlers by path, including `path`.
    shows: Mapping[str, Handler]
    #: Handlers of POST by path.
    does: Mapping[str, Action] = field(default_factory=dict)
