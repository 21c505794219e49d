"""What a user may do: roles on topics and groups, by name or by prefix.

| role        | on a topic, or a light queue                 | on a group                        |
|-------------|----------------------------------------------|-----------------------------------|
| `publish`   | put, also where that creates it              |                                   |
| `subscribe` | pull, subscribe, query, search               | commit and fetch offsets          |
| `admin`     | both of these, and create, delete            | the same, and reset, delete       |

A pattern is a whole name, or the beginning of names and `*`; `*` alone stands for all. Whoever has
any role on a topic may look at its settings and bounds. Administrators of the server may do
everything.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Names whose answer is remembered, of one user.
_REMEMBERED = 16_384
#: No topic, light queue or group has a longer name.
_LONGEST_PATTERN = 255
MAX_RIGHTS = 1000  # of one user


class Role(enum.Enum):
    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    ADMIN = "admin"


_ROLES = tuple(Role)


class Kind(enum.Enum):
    TOPIC = "topic"
    GROUP = "group"


class Right(NamedTuple):
    """One row of what a user may do."""

    role: Role
    kind: Kind
    pattern: str


def check_right(field: str, right: Right) -> Right:
    """`right`. Raises InvalidArgumentError for one that means nothing."""
    pattern = right.pattern
    if right.role is Role.PUBLISH and right.kind is Kind.GROUP:
        raise InvalidArgumentError(field, "publish is a right on topics, not on groups")
    if not pattern or len(pattern) > _LONGEST_PATTERN or not pattern.isprintable():
        raise InvalidArgumentError(
            f"{field}.pattern", f"{pattern!r} is not 1 to {_LONGEST_PATTERN} printable characters"
        )
    if "*" in pattern[:-1] or any(sign in pattern for sign in " ,"):
        raise InvalidArgumentError(
            f"{field}.pattern", f"{pattern!r} is no name, nor the beginning of names and one *"
        )
    return right


class Rights:
    """The rights of one user, to be asked often. They never change. Thread: any."""

    def __init__(self, rights: Iterable[Right] = (), *, everything: bool = False) -> None:
        self.rights = tuple(sorted(set(rights), key=_order))
        self.everything = everything
        self._exact: set[tuple[Kind, Role, str]] = set()
        # By role on a kind, all its prefixes: `startswith` looks through them at once.
        self._prefixes: dict[tuple[Kind, Role], tuple[str, ...]] = {}
        self._known: dict[tuple[Kind, Role | None, str], bool] = {}
        for role, kind, pattern in self.rights:
            roles = [role]
            if role is Role.ADMIN:
                roles += [Role.SUBSCRIBE] if kind is Kind.GROUP else [Role.PUBLISH, Role.SUBSCRIBE]
            for each in roles:
                if pattern.endswith("*"):
                    before = self._prefixes.get((kind, each), ())
                    self._prefixes[kind, each] = (*before, pattern[:-1])
                else:
                    self._exact.add((kind, each, pattern))

    def allow(self, kind: Kind, role: Role | None, name: str) -> bool:
        """Whether the role is had on that name; None: any role."""
        if self.everything:
            return True
        key = (kind, role, name)
        known = self._known.get(key)
        if known is None:
            known = self._find(kind, role, name)
            if len(name) > _LONGEST_PATTERN:
                return known  # no name of anything: the caller's text is not kept
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[key] = known
        return known

    def allow_all(self, kind: Kind, role: Role | None, prefix: str) -> bool:
        """Whether the role is had on every name that begins so; None: any role on each."""
        return self.everything or any(
            prefix.startswith(self._prefixes.get((kind, each), ())) for each in _any_of(role)
        )

    def _find(self, kind: Kind, role: Role | None, name: str) -> bool:
        return any((kind, each, name) in self._exact for each in _any_of(role)) or self.allow_all(
            kind, role, name
        )


def _any_of(role: Role | None) -> tuple[Role, ...]:
    return _ROLES if role is None else (role,)


def _order(right: Right) -> tuple[str, str, str]:
    return right.kind.value, right.pattern, right.role.value
