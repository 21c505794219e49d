"""A gate around a resource that is sometimes removed and replaced, such as an open database."""

from __future__ import annotations

from threading import get_ident
from typing import Generic, TypeVar, cast

from store.base import Changes, Lock

T = TypeVar("T")


class Gate(Generic[T]):
    """Many callers use the content at once; one owner removes it exclusively, and puts one back.

    While it is out, callers block in `enter`, so an exchange is invisible to them. After `end` they
    get its error instead.

    Thread: any. Each `enter` must be paired with one `leave` by the same caller, which must not
    call `take` or `enter` in between. Cost: one uncontended lock on entry and one on exit (see
    docs/engine.md).
    """

    def __init__(self) -> None:
        """Starts empty: callers block until the first `put`."""
        self._lock = Lock()
        self._changes = Changes(self._lock)
        # Guarded by _lock.
        self._content: T | None = None
        # Threads, by their number. Not a count: an interrupt (Ctrl-C) may come when a thread is
        # counted in, and before its call can say that it will leave. It then counts as inside until
        # its next call, which enters for itself; a count would stay wrong.
        self._inside: set[int] = set()
        self._end: tuple[type[Exception], str] | None = None

    def enter(self) -> T:
        """Block until there is content, and return it. It stays until `leave`."""
        with self._lock:
            content = self._content
            if content is not None:
                self._inside.add(get_ident())
                return content
            self._inside.discard(get_ident())  # if it is inside, from an interrupted call
            self._changes.tell()

        def look() -> bool:
            nonlocal content
            content = self._there()
            if content is not None:
                self._inside.add(get_ident())
            return content is not None

        self._changes.until(look)
        return cast("T", content)

    def leave(self) -> None:
        with self._lock:
            self._inside.discard(get_ident())
            # The caller that takes the content has emptied the place first.
            if self._content is None and not self._inside:
                self._changes.tell()

    def take(self) -> T:
        """Block until no caller is inside, and return the content. New callers wait from now on.

        Must be followed by `put` or `end`. Raises the error of `end` if that came first.
        """
        content: T | None = None

        def look() -> bool:
            nonlocal content
            content = self._there()
            if content is not None:
                self._content = None
                self._inside.discard(get_ident())  # if it is inside, from an interrupted call
            return content is not None

        self._changes.until(look)
        self._changes.until(lambda: not self._inside)
        return cast("T", content)

    def put(self, content: T) -> None:
        """Give callers content again, also after `end`."""
        with self._lock:
            self._content = content
            self._end = None
            self._changes.tell()

    def end(self, error: type[Exception], text: str) -> None:
        """Raise `error(text)` for all current and later callers. The first end counts until there
        is content again."""
        with self._lock:
            self._content = None
            self._end = self._end or (error, text)
            self._changes.tell()

    def _there(self) -> T | None:
        """The content, if there is one. Must hold _lock. Raises the error of `end`."""
        if self._content is None and self._end is not None:
            error, text = self._end
            raise error(text)
        return self._content
