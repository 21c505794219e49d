"""Users and rights. Values are the messages of access.proto, in kvcq_client.pb.v1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.arguments import checked, of_kind
from kvcq_client.pb.v1 import access_pb2 as pb
from kvcq_client.transport import Blocking, blocking, paged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcq_client.transport import Connection


@checked()
class AsyncAccess:
    """Manages the users of a server that asks its callers who they are.

    It takes an administrator, but for what a user does to itself. A change is durable when the call
    returns, and holds for streams that are open. Raises NotPossibleError where nobody is asked.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stub = connection.access

    async def create_user(
        self,
        user: str,
        *,
        admin: bool = False,
        secret: str = "",
        limits: pb.UserLimits | None = None,
        timeout_s: float | None = None,
    ) -> str:
        """The new user's secret: one is made unless it is given. Raises AlreadyExistsError."""
        request = pb.CreateUserRequest(user=user, admin=admin, secret=secret, limits=limits)
        # Repeated after an answer that was lost, it would say that the user exists.
        answer = await self._connection.call(
            self._stub.CreateUser, request, timeout_s, may_repeat=False
        )
        made: str = answer.secret
        return made

    async def delete_user(self, user: str, *, timeout_s: float | None = None) -> None:
        """Its streams end as well. Raises NotFoundError, and NotPossibleError for the last
        administrator."""
        await self._connection.call(
            self._stub.DeleteUser,
            pb.DeleteUserRequest(user=user),
            timeout_s,
            may_repeat=False,
        )

    async def rotate_secret(
        self, user: str, secret: str = "", *, timeout_s: float | None = None
    ) -> str:
        """The new secret; the old one is worth nothing from now on. Raises NotFoundError."""
        answer = await self._connection.call(
            self._stub.RotateSecret,
            pb.RotateSecretRequest(user=user, secret=secret),
            timeout_s,
            may_repeat=False,
        )
        made: str = answer.secret
        return made

    async def set_limits(
        self, user: str, limits: pb.UserLimits, *, timeout_s: float | None = None
    ) -> pb.User:
        """All of the user's limits; 0 is none."""
        request = pb.SetLimitsRequest(user=user, limits=limits)
        return await self._connection.call(self._stub.SetLimits, request, timeout_s)

    async def grant(
        self, user: str, rights: Sequence[pb.AccessRight], *, timeout_s: float | None = None
    ) -> pb.User:
        """The user has these as well. Repeatable."""
        request = _change(user, rights)
        return await self._connection.call(self._stub.Grant, request, timeout_s)

    async def revoke(
        self, user: str, rights: Sequence[pb.AccessRight], *, timeout_s: float | None = None
    ) -> pb.User:
        """The user has these no more, given as they were granted. Repeatable."""
        request = _change(user, rights)
        return await self._connection.call(self._stub.Revoke, request, timeout_s)

    async def users(self, *, timeout_s: float | None = None) -> list[pb.User]:
        """All users, by name; never their secrets."""
        pages = paged(self._connection.call, self._stub.ListUsers, pb.ListUsersRequest(), timeout_s)
        return [user async for page in pages for user in page.users]

    async def user(self, user: str, *, timeout_s: float | None = None) -> pb.User:
        """Raises NotFoundError."""
        request = pb.GetUserRequest(user=user)
        return await self._connection.call(self._stub.GetUser, request, timeout_s)

    async def who_am_i(self, *, timeout_s: float | None = None) -> pb.User:
        """The user whose credentials the client has."""
        return await self._connection.call(self._stub.WhoAmI, pb.WhoAmIRequest(), timeout_s)


def _change(user: str, rights: Sequence[pb.AccessRight]) -> pb.ChangeRightsRequest:
    for right in rights:
        of_kind("rights", right, pb.AccessRight)
    return pb.ChangeRightsRequest(user=user, rights=rights)


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
