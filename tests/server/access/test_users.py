"""server/access/users.py and secrets.py on a real database and real files."""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING

import pytest

from kvcq.errors import CorruptValueError
from server.access import Limits, Users, users_of_stopped_store
from server.access.rights import ResourceKind, Role
from server.access.secrets import Vault
from server.errors import KeyFileError, LastAdminError, UnknownUserError, UserExistsError
from store.errors import InvalidArgumentError, StoreLockedError
from store.notes import Notes
from tests.support.fake_clock import FakeClock
from tests.support.users import right

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECRET = "a-secret-of-somebody"


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault.open(tmp_path / "keys" / "store.key")


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path / "notes")


@pytest.fixture
def users(notes: Notes, vault: Vault) -> Users:
    return Users(notes, vault, FakeClock())


def test_users_are_there_again(users: Users, notes: Notes, vault: Vault) -> None:
    users.create("ops", is_admin=True)
    made = users.create("app", secret=SECRET, limits=Limits(calls=7))
    assert made.secret == SECRET
    users.grant("app", [right("publish topic a*"), right("subscribe group g")])
    users.grant("app", [right("publish topic a*"), right("admin topic %LMQ%x")])
    users.revoke("app", [right("subscribe group g"), right("subscribe topic never-granted")])
    again = Users(notes, vault, FakeClock())
    assert [user.name for user in again.every()] == ["app", "ops"]
    for name in ("app", "ops"):
        one, other = users.get(name), again.get(name)
        assert (one.secret, one.is_admin, one.limits, one.created_ms, one.rights.rights) == (
            (other.secret, other.is_admin, other.limits, other.created_ms, other.rights.rights)
        )
    app = again.get("app")
    assert app.rights.allow(ResourceKind.TOPIC, Role.PUBLISH, "abc")
    assert not app.rights.allow(ResourceKind.GROUP, Role.SUBSCRIBE, "g")
    assert again.get("ops").rights.allow(ResourceKind.GROUP, Role.ADMIN, "anything")


def test_each_change_is_a_generation(users: Users) -> None:
    before = users.generation
    users.create("a", is_admin=True)
    users.create("b")
    users.grant("b", [right("admin topic t")])
    users.set_limits("b", Limits(connections=1))
    old = users.get("b").secret
    assert users.rotate("b").secret != old
    assert users.get("b").rights.allow(ResourceKind.TOPIC, Role.ADMIN, "t"), (
        "kept through the changes"
    )
    users.delete("b")
    assert users.generation == before + 6
    assert users.find("b") is None


def test_the_last_administrator_stays(users: Users) -> None:
    users.create("a", is_admin=True)
    users.create("b")
    with pytest.raises(LastAdminError):
        users.delete("a")
    users.create("c", is_admin=True)
    users.delete("a")
    assert users.has_admin


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a,b", "-a", "é", "x" * 129, "a\n"])
def test_names_that_no_header_carries_are_refused(users: Users, name: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        users.create(name)
    assert refused.value.field == "name"
    assert users.every() == []


@pytest.mark.parametrize(
    "secret", ["", "short", "with spaces in it", "tab\tbed-secret", "ü" * 9, "x" * 257]
)
def test_weak_secrets_are_refused_and_not_told(users: Users, secret: str) -> None:
    users.create("a")
    refusals: list[Callable[[], object]] = [
        lambda: users.create("b", secret=secret),
        lambda: users.rotate("a", secret),
    ]
    for refusal in refusals:
        with pytest.raises(InvalidArgumentError) as refused:
            refusal()
        assert refused.value.field == "secret"
        assert not secret or secret not in str(refused.value)
    assert users.find("b") is None


def test_what_does_not_exist_or_does_already(users: Users) -> None:
    users.create("a")
    with pytest.raises(UserExistsError):
        users.create("a")
    changes: list[Callable[[], object]] = [
        lambda: users.delete("b"),
        lambda: users.rotate("b"),
        lambda: users.grant("b", [right("admin topic t")]),
        lambda: users.revoke("b", [right("admin topic t")]),
        lambda: users.set_limits("b", Limits()),
    ]
    for change in changes:
        with pytest.raises(UnknownUserError):
            change()


def test_a_user_has_so_many_rights_at_most(users: Users) -> None:
    users.create("a")
    users.grant("a", [right(f"publish topic t{number}") for number in range(1000)])
    with pytest.raises(InvalidArgumentError, match="more than 1000"):
        users.grant("a", [right("publish topic one-more")])
    assert len(users.get("a").rights.rights) == 1000


def test_no_secret_lies_in_the_clear(users: Users, notes: Notes, tmp_path: Path) -> None:
    users.create("a", secret=SECRET)
    assert SECRET not in repr(users.get("a"))
    found = [file for file in (tmp_path / "notes").rglob("*") if file.is_file()]
    assert found
    for file in found:
        assert SECRET.encode() not in file.read_bytes()


def test_the_same_secret_is_sealed_in_another_way_each_time(vault: Vault) -> None:
    assert vault.seal("a", SECRET) != vault.seal("a", SECRET)


def test_a_sealed_secret_fits_its_user_and_its_key_alone(vault: Vault, tmp_path: Path) -> None:
    sealed = vault.seal("a", SECRET)
    assert vault.unseal("a", sealed) == SECRET
    other = Vault.open(tmp_path / "other.key")
    openings: list[Callable[[], str]] = [
        lambda: vault.unseal("b", sealed),
        lambda: other.unseal("a", sealed),
        lambda: vault.unseal("a", b""),
    ]
    for opened in openings:
        with pytest.raises(KeyFileError):
            opened()
    for at in range(len(sealed)):
        altered = sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]
        with pytest.raises(KeyFileError):
            vault.unseal("a", altered)


def test_the_key_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.key"
    sealed = Vault.open(path).seal("a", SECRET)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["store.key"]
    assert Vault.open(path).unseal("a", sealed) == SECRET
    path.chmod(0o640)
    with pytest.raises(KeyFileError, match="chmod 600"):
        Vault.open(path)


@pytest.mark.parametrize("data", [b"", b"xyz", b"00" * 31, b"00" * 33, b"\xff" * 64])
def test_a_key_file_that_holds_no_key_is_not_replaced(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "store.key"
    path.write_bytes(data)
    path.chmod(0o600)
    with pytest.raises(KeyFileError, match="64 hex digits"):
        Vault.open(path)
    assert path.read_bytes() == data


def test_a_key_file_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(KeyFileError, match="cannot be"):
        Vault.open(tmp_path / "file" / "store.key")


@pytest.mark.parametrize(
    "row", [b"", b"[]", b"{", b'{"form": 2}', b'{"form": 1, "admin": false}', b"\xff"]
)
def test_a_row_that_cannot_be_read_is_told(notes: Notes, vault: Vault, row: bytes) -> None:
    notes.put("users", json.dumps({"a": row.decode("latin-1")}).encode())
    with pytest.raises(CorruptValueError, match="'a'"):
        Users(notes, vault, FakeClock())


def test_a_row_is_json_for_whoever_looks(users: Users, notes: Notes) -> None:
    users.create("a")
    value = notes.get("users")
    assert value is not None
    assert set(json.loads(json.loads(value)["a"])) == {
        "form",
        "admin",
        "created",
        "secret",
        "rights",
        "limits",
    }


def test_a_stopped_store_gets_its_first_administrator(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    with users_of_stopped_store(directory, None) as users:
        assert not users.has_admin
        users.create("ops", is_admin=True, secret=SECRET)
        with pytest.raises(StoreLockedError), users_of_stopped_store(directory, None):
            pass
    assert (tmp_path / "store.key").exists()
    with users_of_stopped_store(directory, None) as users:
        assert users.get("ops").secret == SECRET
    with (
        pytest.raises(KeyFileError, match=r"copy this store.s key file there"),
        users_of_stopped_store(directory, tmp_path / "other.key"),
    ):
        pass
