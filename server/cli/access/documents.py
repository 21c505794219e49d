"""A user, for JSON."""

from __future__ import annotations

from kvcq_client.pb.v1 import access_pb2 as pb
from server.cli.terminal import document_of

ROLES = {"publish": pb.ROLE_PUBLISH, "subscribe": pb.ROLE_SUBSCRIBE, "admin": pb.ROLE_ADMIN}
WORDS = {number: word for word, number in ROLES.items()}
LIMITS = ("connections", "calls", "bytes_per_s", "messages_per_s")


def document(one: pb.User) -> dict[str, object]:
    return {
        **document_of(one, "user admin created_ms"),
        "limits": document_of(one.limits, " ".join(LIMITS)),
        "rights": [
            {
                "role": WORDS[right.role],
                "kind": right.WhichOneof("on"),
                "pattern": right.topic or right.group,
            }
            for right in one.rights
        ],
    }
