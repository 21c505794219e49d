"""Access control: TLS, users and their secrets, signatures, rights, limits, and the audit log.

The only part of the store that it knows is the notes. `server.edge` calls it for each call; it
calls no other room.
"""

from server.access.attempts import Attempts
from server.access.audit import AUDIT, audit_act, audit_refusal
from server.access.caller import EVERYONE, Caller, asker, current_caller
from server.access.gatekeeper import Gatekeeper
from server.access.limits import NO_LIMITS, Limits, Usage
from server.access.needs import NEEDS, Need, check_batch, is_laborious_batch, need_of
from server.access.opening import (
    has_users,
    key_to_bring,
    open_users,
    refuse_new_store,
    users_of_stopped_store,
)
from server.access.rights import MAX_RIGHTS, ResourceKind, Right, Rights, Role
from server.access.tls import ReloadedTls, TlsFiles
from server.access.users import User, Users
from server.access.web_tls import http_tls

__all__ = [
    "AUDIT",
    "EVERYONE",
    "MAX_RIGHTS",
    "NEEDS",
    "NO_LIMITS",
    "Attempts",
    "Caller",
    "Gatekeeper",
    "Limits",
    "Need",
    "ReloadedTls",
    "ResourceKind",
    "Right",
    "Rights",
    "Role",
    "TlsFiles",
    "Usage",
    "User",
    "Users",
    "asker",
    "audit_act",
    "audit_refusal",
    "check_batch",
    "current_caller",
    "has_users",
    "http_tls",
    "is_laborious_batch",
    "key_to_bring",
    "need_of",
    "open_users",
    "refuse_new_store",
    "users_of_stopped_store",
]
