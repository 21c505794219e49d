"""Users and their rights over gRPC. Changes are written to disk by workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import access_pb2 as pb
from kvcq_client.pb.v1 import access_pb2_grpc
from server.access import MAX_RIGHTS, Limits, ResourceKind, Right, Role, current_caller
from server.errors import AccessOffError
from server.wire import not_more, page_size_of
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.access import User, Users
    from server.edge import Context
    from server.workers import Pools

_ROLES = {
    pb.ROLE_PUBLISH: Role.PUBLISH,
    pb.ROLE_SUBSCRIBE: Role.SUBSCRIBE,
    pb.ROLE_ADMIN: Role.ADMIN,
}
_NUMBERS = {role: number for number, role in _ROLES.items()}


class AccessService(access_pb2_grpc.AccessServiceServicer):
    """Rejects all calls if the server has no users."""

    def __init__(self, users: Users | None, pools: Pools) -> None:
        self._known = users
        self._pools = pools

    async def CreateUser(
        self, request: pb.CreateUserRequest, context: Context
    ) -> pb.SecretResponse:
        users = self._users()
        user = await self._pools.changes.run(
            lambda: users.create(
                request.user,
                is_admin=request.admin,
                secret=request.secret or None,
                limits=_limits_in(request.limits),
            )
        )
        return pb.SecretResponse(user=user.name, secret=user.secret)

    async def DeleteUser(
        self, request: pb.DeleteUserRequest, context: Context
    ) -> pb.DeleteUserResponse:
        await self._pools.changes.run(self._users().delete, request.user)
        return pb.DeleteUserResponse()

    async def ListUsers(self, request: pb.ListUsersRequest, context: Context) -> bytes:
        size = page_size_of(request.page_size)
        users = self._users()

        def page() -> pb.ListUsersResponse:
            # One more than asked for tells whether there is another page.
            found = [user for user in users.every() if user.name > request.page_token]
            token = found[size - 1].name if len(found) > size else ""
            return pb.ListUsersResponse(users=map(user_out, found[:size]), next_page_token=token)

        return await self._pools.scans.encoded(page)

    async def RotateSecret(
        self, request: pb.RotateSecretRequest, context: Context
    ) -> pb.SecretResponse:
        user = await self._pools.changes.run(
            self._users().rotate, request.user, request.secret or None
        )
        return pb.SecretResponse(user=user.name, secret=user.secret)

    async def SetLimits(self, request: pb.SetLimitsRequest, context: Context) -> pb.User:
        limits = _limits_in(request.limits)
        return user_out(
            await self._pools.changes.run(self._users().set_limits, request.user, limits)
        )

    async def Grant(self, request: pb.ChangeRightsRequest, context: Context) -> pb.User:
        rights = _rights_in(request.rights)
        return user_out(await self._pools.changes.run(self._users().grant, request.user, rights))

    async def Revoke(self, request: pb.ChangeRightsRequest, context: Context) -> pb.User:
        rights = _rights_in(request.rights)
        return user_out(await self._pools.changes.run(self._users().revoke, request.user, rights))

    async def GetUser(self, request: pb.GetUserRequest, context: Context) -> pb.User:
        return user_out(self._users().get(request.user))

    async def WhoAmI(self, request: pb.WhoAmIRequest, context: Context) -> pb.User:
        return user_out(self._users().get(current_caller().name))

    def _users(self) -> Users:
        if self._known is None:
            raise AccessOffError
        return self._known


def user_out(user: User) -> pb.User:
    """The user, without its secret."""
    return pb.User(
        user=user.name,
        admin=user.is_admin,
        created_ms=user.created_ms,
        limits=pb.UserLimits(**user.limits._asdict()),
        rights=[_right_out(right) for right in user.rights.rights],
    )


def _right_out(right: Right) -> pb.AccessRight:
    if right.kind is ResourceKind.TOPIC:
        return pb.AccessRight(role=_NUMBERS[right.role], topic=right.pattern)
    return pb.AccessRight(role=_NUMBERS[right.role], group=right.pattern)


def _rights_in(rights: Sequence[pb.AccessRight]) -> list[Right]:
    not_more("rights", rights, MAX_RIGHTS, "rights")
    if not rights:
        raise InvalidArgumentError("rights", "are missing")
    found = []
    for at, right in enumerate(rights):
        role, on = _ROLES.get(right.role), right.WhichOneof("on")
        if role is None:
            raise InvalidArgumentError(f"rights[{at}].role", f"{right.role} is not a Role")
        if on is None:
            raise InvalidArgumentError(f"rights[{at}]", "names neither a topic nor a group")
        found.append(Right(role, ResourceKind(on), getattr(right, on)))
    return found


def _limits_in(limits: pb.UserLimits) -> Limits:
    return Limits(limits.connections, limits.calls, limits.bytes_per_s, limits.messages_per_s)
