"""Users and rights managed over real gRPC, and stores whose users or key are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kvcq_client import (
    AsyncClient,
    Credentials,
    Message,
    NotPossibleError,
    PermissionDeniedError,
    Right,
    Role,
    UserLimits,
)
from kvcq_client.pb.v1 import access_pb2 as access
from kvcq_client.transport.secured import Signer
from server.access import Gatekeeper, ResourceKind
from server.access import Role as ServerRole
from server.errors import KeyFileError
from server.errors import UnauthenticatedError as ServerUnauthenticatedError
from server.stage import Stage
from store.errors import InvalidArgumentError
from tests.support.serving import serving
from tests.support.users import ADMIN, add_users, client_of, guarded, refusal, secret_of, users_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.serving import Served


def _one_by_one(*rights: Right) -> Any:  # noqa: ANN401 - not as annotated
    yield from rights


async def test_users_are_managed_over_the_network(served: Served) -> None:
    async with client_of(served, "ops") as ops:
        secret = await ops.access.create_user("new", limits=UserLimits(calls=5))
        assert len(secret) >= 40
        await ops.access.grant("new", _one_by_one(Right(Role.ADMIN, topic="new-*")))
        assert [user.name for user in await ops.access.users()] == ["app", "new", "ops", "reader"]
        async with client_of(served, "new", secret) as new:
            await new.create_topic("new-one", 1)
            await new.put(Message("new-one", b"x"))
            own = await new.access.user("new")
            assert own == await new.access.who_am_i()
            assert own.limits.calls == 5
            secret = await new.access.rotate_secret("new")
            await refusal(new)
        async with client_of(served, "new", secret) as new:
            await new.delete_topic("new-one")
            for forbidden in (
                new.access.users(),
                new.access.user("app"),
                new.access.rotate_secret("app"),
                new.access.create_user("mine", admin=True),
                new.access.grant("new", own.rights),
            ):
                with pytest.raises(PermissionDeniedError):
                    await forbidden
        with pytest.raises(NotPossibleError, match="only administrator"):
            await ops.access.delete_user("ops")


async def test_pages_of_users(served: Served) -> None:
    headers: Any = Signer(ADMIN).headers()
    ask: Any = served.channel.unary_unary(
        "/kvcq.v1.AccessService/ListUsers",
        access.ListUsersRequest.SerializeToString,
        access.ListUsersResponse.FromString,
    )
    names, token = [], ""
    while True:
        page = await ask(access.ListUsersRequest(page_size=2, page_token=token), metadata=headers)
        names += [user.user for user in page.users]
        if not (token := page.next_page_token):
            break
    assert names == ["app", "ops", "reader"]


async def test_rights_that_mean_nothing_are_refused(served: Served) -> None:
    topic = access.AccessRight(role=access.ROLE_ADMIN, topic="t")
    wrong = {
        "rights": [],
        "rights[1].role": [topic, access.AccessRight(topic="t")],
        "rights[0]": [access.AccessRight(role=access.ROLE_ADMIN)],
        "rights[0].pattern": [access.AccessRight(role=access.ROLE_ADMIN, topic="a*b")],
    }
    async with client_of(served, "ops") as ops:
        for field, rights in wrong.items():
            with pytest.raises(Exception) as refused:  # noqa: PT011 - its field says which
                await ops._connection.call(
                    ops._connection.access.Grant,
                    access.ChangeRightsRequest(user="app", rights=rights),
                )
            assert getattr(refused.value, "field", "") == field
        assert len((await ops.access.user("app")).rights) == 3


async def test_without_access_nobody_manages_users_and_everybody_is_served(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as served, AsyncClient(served.target) as client:
        with pytest.raises(NotPossibleError, match="--access"):
            await client.access.create_user("planted", admin=True)
        await client.put(Message("orders", b"x"))
        assert served.store.notes.get("users") is None


async def test_a_store_without_an_administrator_is_not_served(tmp_path: Path) -> None:
    root = tmp_path / "store"
    for is_there in (False, True):
        with pytest.raises(InvalidArgumentError, match="kvcq user add admin --admin --data"):
            async with serving(root, access=True):
                pytest.fail("it must not become ready")
        assert root.exists() == is_there, "nothing is made first"
        async with serving(root) as served:
            assert served.store.notes.get("users") is None


async def test_users_stay_over_a_restart(tmp_path: Path) -> None:
    async with (
        guarded(tmp_path / "store", {"app": ["admin topic *"]}) as served,
        client_of(served, "app") as app,
    ):
        await app.put(Message("orders", b"x"))
    async with (
        serving(tmp_path / "store", access=True) as served,
        client_of(served, "app") as app,
    ):
        assert [topic.name async for topic in app.topics()] == ["orders"]


async def test_a_change_while_a_caller_is_let_in_is_noticed(served: Served) -> None:
    users = users_of(served)

    class Late:
        """Deletes the user after it was looked up, before the call begins."""

        generation = property(lambda _: users.generation)

        def find(self, name: str) -> object:
            found = users.find(name)
            if found is not None:
                users.delete(name)
            return found

    gatekeeper = Gatekeeper(Stage())
    gatekeeper.users = Late()  # type: ignore[assignment] # as far as it is asked
    signer = Signer(Credentials("app", secret_of("app")))
    caller = gatekeeper.authenticate(signer.headers(), "kvcq.v1.MessageService", needs_user=True)
    with pytest.raises(ServerUnauthenticatedError, match="deleted"):
        caller.check(ServerRole.PUBLISH, ResourceKind.TOPIC, "orders")


async def test_a_store_without_its_key_gets_no_new_one(tmp_path: Path) -> None:
    add_users(tmp_path / "store", {})
    key = tmp_path / "store.key"
    key.rename(tmp_path / "kept")
    with pytest.raises(KeyFileError, match="is missing, but the store has users"):
        async with serving(tmp_path / "store", access=True):
            pytest.fail("it must not become ready")
    assert not key.exists()
    (tmp_path / "kept").rename(key)
    async with (
        serving(tmp_path / "store", access=True) as served,
        client_of(served, "ops") as ops,
    ):
        await ops.statistics()
