"""Authenticates callers: finds the user of a signature, and tracks its usage."""

from __future__ import annotations

import hmac
from time import time
from typing import TYPE_CHECKING

from server.access.audit import audit_refusal
from server.access.caller import EVERYONE, Caller, Stranger, UserCaller, set_caller
from server.access.limits import Usage
from server.access.signatures import is_fresh, is_signed_with, signed_of, time_of
from server.errors import UnauthenticatedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.access.signatures import Signed
    from server.access.users import User, Users
    from server.stage import Stage

#: How far the time of a signature may be from the server's. After that an intercepted signature is
#: worthless.
MAX_SKEW_S = 300.0
#: Number of valid signatures that are remembered, since a client reuses one for a second. Invalid
#: ones are never remembered.
_REMEMBERED = 4096
#: Number of users without calls in progress that are remembered.
_IDLE_USERS = 1024
#: Clients of RocketMQ sign local time as if it were UTC.
_ROCKETMQ = "apache.rocketmq."
#: For names that no user has, so that it takes as long to refuse them.
_NO_SECRET = "0" * 43


class Gatekeeper:
    """Authenticates callers. Owned by the event loop's thread."""

    def __init__(self, stage: Stage, now_s: Callable[[], float] = time) -> None:
        self._stage = stage
        self._now_s = now_s
        self.users: Users | None = None  # until the store is open
        self._usage: dict[str, Usage] = {}
        # A good signature to its time, and the user whose secret it was made with.
        self._good: dict[Signed, tuple[float, User]] = {}

    def authenticate(self, metadata: object, service: str, *, needs_user: bool) -> Caller:
        """Authenticate a new call from its headers, and set the task's caller.

        Raises UnauthenticatedError, and ServerStartingError while users are not loaded yet.
        """
        if not needs_user:
            set_caller(EVERYONE)
            return EVERYONE
        if self.users is None:
            self._stage.check_open()
            raise UnauthenticatedError("users are not loaded yet; try again in a moment")
        signed = signed_of(metadata)
        if signed is None:
            set_caller(EVERYONE)
            raise UnauthenticatedError(
                "this server only accepts signed calls: Client(…, credentials=Credentials(KEY, "
                "SECRET)); on the command line --access-key and --secret-file, or KVCQ_ACCESS_KEY "
                "and KVCQ_SECRET_FILE"
            )
        generation = self.users.generation
        user = self._user_of(signed, self.users, any_zone=service.startswith(_ROCKETMQ))
        caller = UserCaller(self.users, user, generation, self._usage_of(user))
        set_caller(caller)
        return caller

    def enter_as(self, name: str) -> None:
        """Set the task's caller to a user authenticated in another way, such as by signing in.

        Raises UnauthenticatedError, and ServerStartingError while users are not loaded yet.
        """
        if self.users is None:
            self._stage.check_open()
        generation = 0 if self.users is None else self.users.generation
        user = None if self.users is None else self.users.find(name)
        if self.users is None or user is None:
            set_caller(Stranger(name))
            raise UnauthenticatedError(f"user {name!r} no longer exists")
        set_caller(UserCaller(self.users, user, generation, self._usage_of(user)))

    def user_with(self, name: str, secret: str, method: str) -> User | None:
        """The user with this name and secret; None, with an audit line, if either is wrong.
        `method`: what they wanted, for the audit."""
        found = None if self.users is None else self.users.find(name)
        known = "" if found is None else found.secret  # as long for a name that belongs to no user
        fits = hmac.compare_digest(secret.encode(errors="replace"), known.encode())
        if found is None or not fits:
            audit_refusal(method, "UNAUTHENTICATED", f"{name!r}: wrong name or secret", "")
            return None
        return found

    def _user_of(self, signed: Signed, users: Users, *, any_zone: bool) -> User:
        user = users.find(signed.access_key)
        known = self._good.get(signed)
        if known is not None and known[1] is user:
            signed_s, _ = known
        else:
            secret = _NO_SECRET if user is None else user.secret
            is_good = is_signed_with(secret, signed)
            found_s = time_of(signed.date_time)
            if user is None or not is_good or found_s is None:
                set_caller(Stranger(signed.access_key))
                raise UnauthenticatedError(
                    "the signature does not match a user of this store: the access key or "
                    "the secret is wrong"
                )
            signed_s = found_s
            if len(self._good) >= _REMEMBERED:
                self._good.clear()
            self._good[signed] = (signed_s, user)
        now_s = self._now_s()
        if not is_fresh(signed_s, now_s, MAX_SKEW_S, any_zone=any_zone):
            set_caller(Stranger(user.name))
            raise UnauthenticatedError(
                f"the call was signed {abs(now_s - signed_s):.0f} s "
                f"{('ago' if signed_s < now_s else 'from now')} by the server's clock, and "
                f"at most {MAX_SKEW_S:.0f} s are allowed: synchronize the clocks, or sign "
                "again"
            )
        return user

    def _usage_of(self, user: User) -> Usage:
        found = self._usage.get(user.name)
        if found is None:
            if len(self._usage) >= _IDLE_USERS:
                self._usage = {
                    name: usage for name, usage in self._usage.items() if not usage.is_idle
                }
            found = self._usage[user.name] = Usage(user.name)
        found.limits = user.limits
        return found
