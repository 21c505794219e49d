"""The rights of a user: roles on topics and groups, by name or by prefix.

| role        | on a topic, or a light queue                 | on a group                        |
|-------------|----------------------------------------------|-----------------------------------|
| `publish`   | put, also if that creates it                 |                                   |
| `subscribe` | pull, subscribe, query, search               | commit and fetch offsets          |
| `admin`     | both of these, and create, delete            | the same, and reset, delete       |

A pattern is a whole name, or a prefix and `*`; `*` alone matches all names. A user with any role on
a topic may see its settings and bounds. Administrators of the server may do everything.
"""

from __future__ import annotations

import enum
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

from store.errors import InvalidArgumentError
from store.format import LONGEST_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Names whose answer is remembered, of one user.
_REMEMBERED = 16_384
MAX_RIGHTS = 1000  # for one user


class Role(enum.Enum):
    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    ADMIN = "admin"


class ResourceKind(enum.Enum):
    TOPIC = "topic"
    GROUP = "group"


class Right(NamedTuple):
    """One right of a user."""

    role: Role
    kind: ResourceKind
    pattern: str


def check_right(field: str, right: Right) -> Right:
    """Return `right`. Raises InvalidArgumentError if it is meaningless."""
    pattern = right.pattern
    if right.role is Role.PUBLISH and right.kind is ResourceKind.GROUP:
        raise InvalidArgumentError(field, "publish is only a right on topics, not on groups")
    if not pattern or len(pattern) > LONGEST_NAME or not pattern.isprintable():
        raise InvalidArgumentError(
            f"{field}.pattern", f"{pattern!r} is not 1 to {LONGEST_NAME} printable characters"
        )
    if "*" in pattern[:-1] or any(sign in pattern for sign in " ,"):
        raise InvalidArgumentError(
            f"{field}.pattern", f"{pattern!r} is neither a name nor a prefix and one *"
        )
    return right


class _Names(NamedTuple):
    """The names that a role covers."""

    exact: set[str]
    #: Sorted, and none is a prefix of another. So only the last one that is not above a name can be
    #: its prefix, and a user with 1,000 of them costs a binary search, 0.5 us, instead of 1,000
    #: comparisons.
    prefixes: list[str]

    def has(self, name: str) -> bool:
        return name in self.exact or self.has_all(name)

    def has_all(self, prefix: str) -> bool:
        """Whether it covers every name with that prefix."""
        at = bisect_right(self.prefixes, prefix)
        return at > 0 and prefix.startswith(self.prefixes[at - 1])


_NO_NAMES = _Names(set(), [])


class Rights:
    """The rights of one user, prepared for frequent checks. Immutable. Thread: any."""

    def __init__(self, rights: Iterable[Right] = (), *, everything: bool = False) -> None:
        self.rights = tuple(sorted(set(rights), key=_order))
        self.everything = everything
        self._known: dict[tuple[ResourceKind, Role | None, str], bool] = {}
        # By kind and role; with role None for any role.
        patterns: dict[tuple[ResourceKind, Role | None], list[str]] = {}
        for role, kind, pattern in self.rights:
            roles: list[Role | None] = [role, None]
            if role is Role.ADMIN:
                roles += (
                    [Role.SUBSCRIBE]
                    if kind is ResourceKind.GROUP
                    else [Role.PUBLISH, Role.SUBSCRIBE]
                )
            for each in roles:
                patterns.setdefault((kind, each), []).append(pattern)
        self._names = {key: _names_of(found) for key, found in patterns.items()}

    def allow(self, kind: ResourceKind, role: Role | None, name: str) -> bool:
        """Whether the user has the role (None: any) on that name."""
        if self.everything:
            return True
        key = (kind, role, name)
        known = self._known.get(key)
        if known is None:
            known = self._names.get((kind, role), _NO_NAMES).has(name)
            if len(name) > LONGEST_NAME:
                return known  # not a valid name: do not keep the caller's text
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[key] = known
        return known

    def first_refused(
        self, kind: ResourceKind, role: Role | None, names: Iterable[str]
    ) -> str | None:
        """The first name that the role does not cover; None if it covers all. For many names: up to
        a microsecond each, and nothing is cached."""
        if self.everything:
            return None
        known = self._names.get((kind, role), _NO_NAMES)
        return next((name for name in names if not known.has(name)), None)

    def allow_all(self, kind: ResourceKind, role: Role | None, prefix: str) -> bool:
        """Whether the user has the role (None: any) on every name with that prefix."""
        return self.everything or self._names.get((kind, role), _NO_NAMES).has_all(prefix)

    def prefix_within(self, kind: ResourceKind, role: Role | None, prefix: str) -> str | None:
        """A longer prefix for which `allow_all` is true; None if there is none."""
        prefixes = self._names.get((kind, role), _NO_NAMES).prefixes
        at = bisect_left(prefixes, prefix)
        return prefixes[at] if at < len(prefixes) and prefixes[at].startswith(prefix) else None


def _names_of(patterns: list[str]) -> _Names:
    exact = {pattern for pattern in patterns if not pattern.endswith("*")}
    prefixes: list[str] = []
    for prefix in sorted(each[:-1] for each in patterns if each.endswith("*")):
        # Otherwise the shorter prefix covers it.
        if not (prefixes and prefix.startswith(prefixes[-1])):
            prefixes.append(prefix)
    return _Names(exact, prefixes)


def _order(right: Right) -> tuple[str, str, str]:
    return right.kind.value, right.pattern, right.role.value
