"""The caller of a call, and checks of its rights for as long as the call lasts.

A stream may last for days. So a caller looks up its user again after any user was changed: a
revoked right, a new secret or a deletion ends running calls.
"""

from __future__ import annotations

import shlex
from contextvars import ContextVar
from typing import TYPE_CHECKING

from server.access.rights import ResourceKind, Role
from server.errors import ForbiddenError, UnauthenticatedError
from server.workers import CALLER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from server.access.limits import Usage
    from server.access.users import User, Users


class Caller:
    """An anonymous caller with all rights, used where no users are required."""

    name = ""
    usage: Usage | None = None

    def check_still_there(self) -> None:
        """Raises UnauthenticatedError if the user was deleted, or has a new secret."""

    def check(self, role: Role | None, kind: ResourceKind, name: str) -> None:
        """Raises ForbiddenError without the role (None: any) on that name; UnauthenticatedError if
        the user was deleted, or has a new secret."""

    def check_each(self, role: Role | None, kind: ResourceKind, names: Iterable[str]) -> None:
        """Like `check`, for each of the names, of which there may be many."""

    def check_all(self, role: Role | None, kind: ResourceKind, prefix: str) -> None:
        """Like `check`, for all names with that prefix."""

    def check_admin(self, what: str) -> None:
        """Like `check`, for administrators. `what` completes an error message, such as "migrate the
        store"."""

    def is_unbound(self, role: Role, kind: ResourceKind) -> bool:
        """Whether the role covers all names, so that none has to be checked."""
        return True

    def may_look_at(self, topic: str) -> bool:
        """Whether the caller has any role on the topic. Thread-safe."""
        return True

    def may_see_group(self, group: str) -> bool:
        """Whether the caller may receive and read with the group. Thread-safe."""
        return True

    # --- what calls ask for, in short ------------------------------------------------------

    def publishes(self, topics: Iterable[str]) -> None:
        self.check_each(Role.PUBLISH, ResourceKind.TOPIC, topics)

    def subscribes(self, topic: str) -> None:
        self.check(Role.SUBSCRIBE, ResourceKind.TOPIC, topic)

    def reads_found(self, topics: Iterable[str], what: str) -> None:
        """Check a topic that was found and not named by the caller: the error does not reveal it.
        `what` completes an error message, such as "message X"."""
        for topic in topics:
            try:
                self.subscribes(topic)
            except ForbiddenError:
                remedy = (
                    f"kvcq acl grant {self.name} subscribe --topic TOPIC, where TOPIC is its topic"
                )
                raise ForbiddenError(self.name, f"read {what}", remedy) from None

    def count_messages(self, count: int) -> None:
        """Count messages that were put or read."""
        if self.usage is not None:
            self.usage.count(0, count)


class Stranger(Caller):
    """A caller that was not authenticated; the name is the one it gave."""

    def __init__(self, name: str) -> None:
        self.name = name


class UserCaller(Caller):
    """A user of the store."""

    def __init__(self, users: Users, user: User, generation: int, usage: Usage) -> None:
        """`generation`: of the users from before `user` was looked up, so that a change in between
        is noticed."""
        self.name = user.name
        self.usage = usage
        self._users = users
        self._generation = generation
        self._user = user

    def check_still_there(self) -> None:
        self._now()

    def check(self, role: Role | None, kind: ResourceKind, name: str) -> None:
        if not self._now().rights.allow(kind, role, name):
            raise self._forbidden(role, kind, name)

    def check_each(self, role: Role | None, kind: ResourceKind, names: Iterable[str]) -> None:
        refused = self._now().rights.first_refused(kind, role, names)
        if refused is not None:
            raise self._forbidden(role, kind, refused)

    def check_all(self, role: Role | None, kind: ResourceKind, prefix: str) -> None:
        rights = self._now().rights
        if not rights.allow_all(kind, role, prefix):
            instead = ""
            if kind is ResourceKind.TOPIC and (
                narrower := rights.prefix_within(kind, role, prefix)
            ):
                instead = f", but may: kvcq topic list --prefix {shlex.quote(narrower)}"
            raise self._forbidden(role, kind, f"{prefix}*", instead)

    def may_look_at(self, topic: str) -> bool:
        return self._now().rights.allow(ResourceKind.TOPIC, None, topic)

    def may_see_group(self, group: str) -> bool:
        return self._now().rights.allow(ResourceKind.GROUP, Role.SUBSCRIBE, group)

    def check_admin(self, what: str) -> None:
        if not self._now().is_admin:
            raise ForbiddenError(self.name, what, None)

    def is_unbound(self, role: Role, kind: ResourceKind) -> bool:
        return self._now().rights.allow_all(kind, role, "")

    def _now(self) -> User:
        generation = self._users.generation
        if generation != self._generation:
            found = self._users.find(self.name)
            if found is None or found.secret != self._user.secret:
                raise UnauthenticatedError(
                    f"user {self.name!r} was deleted, or has a new secret: reconnect with "
                    "the new one"
                )
            self._user, self._generation = found, generation
            assert self.usage is not None
            self.usage.limits = found.limits
        return self._user

    def _forbidden(
        self, role: Role | None, kind: ResourceKind, name: str, instead: str = ""
    ) -> ForbiddenError:
        doing = {
            None: "look at",
            Role.PUBLISH: "publish to",
            Role.SUBSCRIBE: "subscribe to",
            Role.ADMIN: "administer",
        }[role]
        wanted = Role.SUBSCRIBE if role is None else role
        remedy = f"kvcq acl grant {self.name} {wanted.value} --{kind.value} {shlex.quote(name)}"
        what = f"{doing} {kind.value} {name!r}{instead}"
        # The key is "topic" or "group": a field of the error.
        return ForbiddenError(self.name, what, remedy, **{kind.value: name})


#: The caller if no user is required.
EVERYONE = Caller()
_CURRENT: ContextVar[Caller] = ContextVar("kvcq_caller", default=EVERYONE)


def current_caller() -> Caller:
    """The caller of this task's call. Worker threads have none, so get it before."""
    return _CURRENT.get()


def asker() -> str:
    """The user whose call this task serves, or the connection without users."""
    return current_caller().name or CALLER.get()


def set_caller(caller: Caller) -> None:
    """Set the caller of the current task, and of tasks that it starts."""
    _CURRENT.set(caller)
