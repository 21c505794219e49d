"""Users: access keys with a secret, rights and limits.

They are stored in one note beside the log, `users`: a JSON object from names to these fields:

| field     | value                                                       |
|-----------|-------------------------------------------------------------|
| `form`    | 1                                                           |
| `admin`   | whether it may do everything                                |
| `created` | ms since 1970                                               |
| `secret`  | sealed, see secrets.py, in base64                           |
| `rights`  | lists of role, kind and pattern, see rights.py              |
| `limits`  | by name, see limits.py; a missing one is 0                  |

They are not in the log, because others may read that. Each change rewrites the note durably. All
users are also in memory.
"""

from __future__ import annotations

import json
import threading
from base64 import b64decode, b64encode
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kvcq.errors import CorruptValueError
from kvcq_client.transport import ACCESS_KEY_FORM
from server.access.limits import NO_LIMITS, Limits, check_limits
from server.access.rights import MAX_RIGHTS, ResourceKind, Right, Rights, Role, check_right
from server.access.secrets import check_secret, new_secret
from server.errors import LastAdminError, UnknownUserError, UserExistsError
from store.errors import InvalidArgumentError
from store.notes import USERS_NOTE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from server.access.secrets import Vault
    from store.base import Clock
    from store.notes import Notes

_FORM = 1
MAX_USERS = 10_000


@dataclass(frozen=True)
class User:
    """One user. Immutable; a change creates a new one."""

    name: str
    secret: str = field(repr=False)
    is_admin: bool = False
    rights: Rights = field(default_factory=Rights, repr=False)
    limits: Limits = NO_LIMITS
    created_ms: int = 0


class Users:
    """All users of a store.

    Thread: `find`, `every` and `generation` any; changes any, one at a time; they access the disk.
    Locks: `_changing`, held while a change is written.
    """

    def __init__(self, notes: Notes, vault: Vault, clock: Clock) -> None:
        """Load all users. Blocks. Raises KeyFileError for the key of another store,
        CorruptValueError, StoreFormatError."""
        self._notes = notes
        self._vault = vault
        self._clock = clock
        self._changing = threading.Lock()
        # Replaced as one; `generation` is raised afterwards.
        rows: dict[str, str] = json.loads(notes.get(USERS_NOTE) or b"{}")
        self._users = {name: self._unpack(name, row) for name, row in rows.items()}
        self.generation = 0

    def find(self, name: str) -> User | None:
        return self._users.get(name)

    def get(self, name: str) -> User:
        """The user. Raises UnknownUserError."""
        found = self._users.get(name)
        if found is None:
            raise UnknownUserError(name)
        return found

    def every(self) -> list[User]:
        """All users, by name."""
        return [user for _, user in sorted(self._users.items())]

    @property
    def has_admin(self) -> bool:
        return any(user.is_admin for user in self._users.values())

    # --- changes ---------------------------------------------------------------------------

    def create(
        self,
        name: str,
        *,
        is_admin: bool = False,
        secret: str | None = None,
        limits: Limits = NO_LIMITS,
    ) -> User:
        """Create a user; without `secret` one is generated. Raises UserExistsError,
        InvalidArgumentError."""
        if not ACCESS_KEY_FORM.fullmatch(name):
            raise InvalidArgumentError(
                "name",
                f"{name!r} must be 1 to 128 letters, digits or . _ @ -, starting with a "
                "letter or digit",
            )
        given = new_secret() if secret is None else check_secret("secret", secret)
        check_limits(limits)
        with self._changing:
            if name in self._users:
                raise UserExistsError(name)
            if len(self._users) >= MAX_USERS:
                raise InvalidArgumentError(
                    "name", f"there are {MAX_USERS} users already: delete some"
                )
            rights = Rights(everything=is_admin)
            return self._put(User(name, given, is_admin, rights, limits, self._clock.now_ms()))

    def delete(self, name: str) -> None:
        """Delete the user. Raises UnknownUserError, LastAdminError."""
        with self._changing:
            user = self.get(name)
            if user.is_admin and sum(each.is_admin for each in self._users.values()) == 1:
                raise LastAdminError(name)
            self._write({key: each for key, each in self._users.items() if key != name})

    def rotate(self, name: str, secret: str | None = None) -> User:
        """Replace the secret at once. Raises UnknownUserError, InvalidArgumentError."""
        given = new_secret() if secret is None else check_secret("secret", secret)
        with self._changing:
            return self._put(replace(self.get(name), secret=given))

    def set_limits(self, name: str, limits: Limits) -> User:
        """Replace all limits. Raises UnknownUserError, InvalidArgumentError."""
        check_limits(limits)
        with self._changing:
            return self._put(replace(self.get(name), limits=limits))

    def grant(self, name: str, rights: Iterable[Right]) -> User:
        """Add these rights. Repeatable. Raises UnknownUserError, InvalidArgumentError."""
        checked = [check_right(f"rights[{at}]", right) for at, right in enumerate(rights)]
        with self._changing:
            user = self.get(name)
            wanted = {*user.rights.rights, *checked}
            if len(wanted) > MAX_RIGHTS:
                raise InvalidArgumentError(
                    "rights",
                    f"{len(wanted)} rights of one user, more than {MAX_RIGHTS}: use prefixes",
                )
            return self._put(replace(user, rights=Rights(wanted, everything=user.is_admin)))

    def revoke(self, name: str, rights: Iterable[Right]) -> User:
        """Remove these rights, exactly as granted; open streams notice. Repeatable.

        Raises UnknownUserError.
        """
        with self._changing:
            user = self.get(name)
            left = set(user.rights.rights) - set(rights)
            return self._put(replace(user, rights=Rights(left, everything=user.is_admin)))

    def _put(self, user: User) -> User:
        self._write({**self._users, user.name: user})
        return user

    def _write(self, users: dict[str, User]) -> None:
        rows = {name: self._pack(user) for name, user in sorted(users.items())}
        self._notes.put(USERS_NOTE, json.dumps(rows).encode())
        self._users = users
        self.generation += 1

    # --- rows ------------------------------------------------------------------------------

    def _pack(self, user: User) -> str:
        return json.dumps(
            {
                "form": _FORM,
                "admin": user.is_admin,
                "created": user.created_ms,
                "secret": b64encode(self._vault.seal(user.name, user.secret)).decode(),
                "rights": [
                    [right.role.value, right.kind.value, right.pattern]
                    for right in user.rights.rights
                ],
                "limits": user.limits._asdict(),
            }
        )

    def _unpack(self, name: str, row: str) -> User:
        try:
            found = json.loads(row)
            if found["form"] != _FORM:
                raise ValueError(f"form {found['form']!r}")
            is_admin = bool(found["admin"])
            rights = [
                Right(Role(role), ResourceKind(kind), pattern)
                for role, kind, pattern in found["rights"]
            ]
            limits = Limits(**found["limits"])
            sealed, created_ms = b64decode(found["secret"]), int(found["created"])
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptValueError(f"user {name!r} has an unreadable row: {error}") from None
        secret = self._vault.unseal(name, sealed)
        return User(name, secret, is_admin, Rights(rights, everything=is_admin), limits, created_ms)
