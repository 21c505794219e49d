"""A user, for JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.cli.terminal import camel_case

if TYPE_CHECKING:
    from kvcq_client import User

LIMITS = ("connections", "calls", "bytes_per_s", "messages_per_s")


def document(one: User) -> dict[str, object]:
    limits = {name: getattr(one.limits, name) or 0 for name in LIMITS}
    return {
        "user": one.name,
        "admin": one.is_admin,
        "createdMs": one.created_time_ms,
        "limits": camel_case(limits),
        "rights": [
            {
                "role": right.role.value,
                "kind": right.kind,
                "pattern": right.pattern,
            }
            for right in one.rights
        ],
    }
