"""The console: web pages of a running server, on a port of their own.

`app` puts it together: `guard` looks at each request before anything else does, `sessions` and
`viewers` say who asks, `calls` hands what a page needs to the methods that gRPC serves, under the
same limits and rights, so a page can show nothing that a call would refuse. `samples` keeps ten
minutes of numbers for the charts. A page is a module of `pages`, with a template, and texts in
`words/`. Everything here runs in the event loop and waits for workers; bodies are decompressed in
a thread.
"""

from server.console.app import console
from server.console.page import Page
from server.console.page_table import PAGES
from server.console.viewers import UserViewers, Viewer, Viewers

__all__ = ["PAGES", "Page", "UserViewers", "Viewer", "Viewers", "console"]
