"""Users of the server, and their rights."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated

from kvcq_client.arguments import checked, of_kind, text, whole
from kvcq_client.pb.v1 import access_pb2 as pb
from kvcq_client.transport import Blocking, blocking, paged
from kvcq_client.wire import Wire, from_wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcq_client.transport import Connection


class Role(Enum):
    """What a right allows."""

    PUBLISH = "publish"  # put into a topic; not for groups
    SUBSCRIBE = "subscribe"  # read a topic; read and commit a group's offsets
    ADMIN = "admin"  # both, and create, delete, reset


@dataclass(frozen=True, slots=True)
class Right:
    """One right: `Right(Role.PUBLISH, topic="orders*")`.

    Give either `topic` (a light queue as well) or `group`: a whole name, or the beginning of names
    and `*`; `*` is every name. Raises ValueError, TypeError.
    """

    role: Role
    topic: str | None = None
    group: str | None = None

    def __post_init__(self) -> None:
        of_kind("role", self.role, Role)
        if (self.topic is None) == (self.group is None):
            raise ValueError("topic, group: give one of them")
        text(self.kind, self.topic if self.group is None else self.group)

    @property
    def kind(self) -> str:
        """What the right is on: "topic" or "group"."""
        return "topic" if self.group is None else "group"

    @property
    def pattern(self) -> str:
        """The name, or the beginning of names and `*`."""
        return (self.topic if self.group is None else self.group) or ""


@dataclass(frozen=True, slots=True)
class UserLimits:
    """Limits over all connections of a user. None: no limit. Raises ValueError, TypeError."""

    connections: int | None = None  # with calls in flight
    calls: int | None = None  # in flight
    bytes_per_s: int | None = None  # of requests and responses together
    messages_per_s: int | None = None  # put and read

    def __post_init__(self) -> None:
        for name in self.__match_args__:
            given = getattr(self, name)
            if given is not None and whole(name, given) < 1:
                raise ValueError(f"{name}: {given} is below 1; use None for no limit")


@dataclass(frozen=True, slots=True)
class User:
    """A user of the server. The server never returns its secret after creation."""

    name: Annotated[str, Wire("user")]  # the access key
    is_admin: Annotated[bool, Wire("admin")]  # may do everything
    rights: tuple[Right, ...]
    limits: UserLimits
    created_time_ms: Annotated[int, Wire("created_ms")]  # ms since 1970


@checked()
class AsyncAccess:
    """Manages the users of a server that was started with `--access`.

    All calls need an administrator, but for what a user may do to itself. A change is durable when
    the call returns, and applies to open streams as well. Raises PermissionDeniedError, and
    NotPossibleError on a server without users.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stub = connection.access

    async def create_user(
        self,
        name: str,
        *,
        admin: bool = False,
        secret: str | None = None,
        limits: UserLimits | None = None,
        timeout_s: float | None = None,
    ) -> str:
        """Create a user, and return its secret: `secret`, or one that the server makes.

        `name` is the access key: 1 to 128 letters, digits, or `. _ @ -`. A new user has no rights.
        Raises AlreadyExistsError.
        """
        request = pb.CreateUserRequest(
            user=name,
            admin=admin,
            secret=secret,
            limits=None if limits is None else _limits_out(limits),
        )
        # Repeated after an answer that was lost, it would say that the user exists.
        answer = await self._connection.call(
            self._stub.CreateUser, request, timeout_s, may_repeat=False
        )
        made: str = answer.secret
        return made

    async def delete_user(self, name: str, *, timeout_s: float | None = None) -> None:
        """Delete a user and end its streams.

        Raises NotFoundError, and NotPossibleError for the last administrator.
        """
        request = pb.DeleteUserRequest(user=name)
        await self._connection.call(self._stub.DeleteUser, request, timeout_s, may_repeat=False)

    async def rotate_secret(
        self, name: str, secret: str | None = None, *, timeout_s: float | None = None
    ) -> str:
        """Replace a user's secret, and return the new one: `secret`, or one that the server makes.

        The old one is refused from now on. A user may rotate its own. Raises NotFoundError.
        """
        request = pb.RotateSecretRequest(user=name, secret=secret)
        answer = await self._connection.call(
            self._stub.RotateSecret, request, timeout_s, may_repeat=False
        )
        made: str = answer.secret
        return made

    async def set_limits(
        self, name: str, limits: UserLimits, *, timeout_s: float | None = None
    ) -> User:
        """Replace all limits of a user. Raises NotFoundError."""
        request = pb.SetLimitsRequest(user=name, limits=_limits_out(limits))
        answer = await self._connection.call(self._stub.SetLimits, request, timeout_s)
        return from_wire(User, answer)

    async def grant(
        self, name: str, rights: Sequence[Right], *, timeout_s: float | None = None
    ) -> User:
        """Give a user these rights as well. Repeatable. Raises NotFoundError."""
        request = _change(name, rights)
        answer = await self._connection.call(self._stub.Grant, request, timeout_s)
        return from_wire(User, answer)

    async def revoke(
        self, name: str, rights: Sequence[Right], *, timeout_s: float | None = None
    ) -> User:
        """Take these rights away, written as they were granted. Repeatable.

        Raises NotFoundError.
        """
        request = _change(name, rights)
        answer = await self._connection.call(self._stub.Revoke, request, timeout_s)
        return from_wire(User, answer)

    async def users(self, *, timeout_s: float | None = None) -> list[User]:
        """All users, by name."""
        pages = paged(self._connection.call, self._stub.ListUsers, pb.ListUsersRequest(), timeout_s)
        return [from_wire(User, user) async for page in pages for user in page.users]

    async def user(self, name: str, *, timeout_s: float | None = None) -> User:
        """One user. A user may look at itself. Raises NotFoundError."""
        request = pb.GetUserRequest(user=name)
        return from_wire(User, await self._connection.call(self._stub.GetUser, request, timeout_s))

    async def who_am_i(self, *, timeout_s: float | None = None) -> User:
        """The user whose credentials the client has."""
        request = pb.WhoAmIRequest()
        return from_wire(User, await self._connection.call(self._stub.WhoAmI, request, timeout_s))


def _change(name: str, rights: Sequence[Right]) -> pb.ChangeRightsRequest:
    rights = list(rights)
    for right in rights:
        of_kind("rights", right, Right)
    return pb.ChangeRightsRequest(
        user=name,
        rights=[
            pb.AccessRight(role=f"ROLE_{right.role.name}", topic=right.topic, group=right.group)
            for right in rights
        ],
    )


def _limits_out(limits: UserLimits) -> pb.UserLimits:
    of_kind("limits", limits, UserLimits)
    return pb.UserLimits(**{name: getattr(limits, name) for name in limits.__match_args__})


class Access(Blocking[AsyncAccess]):
    __doc__ = AsyncAccess.__doc__

    create_user = blocking(AsyncAccess.create_user)
    delete_user = blocking(AsyncAccess.delete_user)
    rotate_secret = blocking(AsyncAccess.rotate_secret)
    set_limits = blocking(AsyncAccess.set_limits)
    grant = blocking(AsyncAccess.grant)
    revoke = blocking(AsyncAccess.revoke)
    users = blocking(AsyncAccess.users)
    user = blocking(AsyncAccess.user)
    who_am_i = blocking(AsyncAccess.who_am_i)
