"""The console: web pages of a running server, on a port of their own.

`app` puts it together. `guard` checks each request before anything else does. `sessions` and
`viewers` identify the user. `calls` fetches what a page needs from the methods that gRPC serves,
under the same limits and rights, so a page shows nothing that a call would reject. `samples` keeps
ten minutes of numbers for the charts. A page is a module of `pages`, with a template, and texts in
`words/`. The console runs in the event loop; only bodies are decompressed, in a worker thread.
"""

from server.console.app import console
from server.console.page import Page
from server.console.page_table import PAGES
from server.console.viewers import UserViewers, Viewer, Viewers

__all__ = ["PAGES", "Page", "UserViewers", "Viewer", "Viewers", "console"]
