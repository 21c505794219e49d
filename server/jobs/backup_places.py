"""Restricts backups to the places that the server's settings name, and below them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

_LONGEST = 1024
#: Characters that begin another part of a URL, or hide a slash.
_NOT_IN_URLS = "?#%\\@"


def allowed_target(target: str, places: Sequence[str]) -> str:
    """The directory or URL for the target. Accesses the disk, to resolve links.

    Raises InvalidArgumentError for one outside the places, and if there are none.
    """
    if not places:
        raise InvalidArgumentError(
            "target",
            "this server has no place for backups: set server.backup_to to a directory or "
            'URL, such as backup_to = ["/srv/backups"], and restart it',
        )
    if len(target) > _LONGEST or not target.isprintable():
        raise InvalidArgumentError(
            "target", f"is longer than {_LONGEST} characters, or not printable"
        )
    if not target:
        return places[0]
    if "://" in target:
        found = _within_urls(target, places)
    elif "://" in places[0] and not Path(target).is_absolute():
        found = _within_urls(f"{places[0].rstrip('/')}/{target}", places)
    else:
        found = _within_directories(target, places)
    if found is None:
        raise InvalidArgumentError(
            "target", f"{target!r} is not within server.backup_to: {', '.join(places)}"
        )
    return found


def _within_urls(target: str, places: Sequence[str]) -> str | None:
    path = target.partition("://")[2]
    if any(character in path for character in _NOT_IN_URLS):
        return None
    parts = path.rstrip("/").split("/")
    if any(part in ("", ".", "..") for part in parts):
        return None
    for place in places:
        base = place.rstrip("/")
        if "://" in place and (target.rstrip("/") == base or target.startswith(f"{base}/")):
            return target.rstrip("/")
    return None


def _within_directories(target: str, places: Sequence[str]) -> str | None:
    directories = [Path(place).expanduser().absolute() for place in places if "://" not in place]
    if not directories:
        return None
    wanted = directories[0] / target  # an absolute target replaces the directory
    try:
        resolved = wanted.resolve()
        # From Python 3.13 on a circle of links is left in the path, and nothing is raised.
        if any(part.is_symlink() for part in (resolved, *resolved.parents)):
            return None
        for directory in directories:
            if resolved.is_relative_to(directory.resolve()):
                return str(resolved)
    except (OSError, RuntimeError):  # a component that is too long; a circle of links
        return None
    return None
