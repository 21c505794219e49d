"""Messages of the migration as plain values, for `--json` and for tables."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from kvcq_client.pb.v1 import migration_pb2 as pb
from server.texts import word_of


def plain(message: Message) -> dict[str, Any]:
    """Every field, for JSON: camelCase names, phases as they are written everywhere, other enums in
    lower case. What is absent is None, an empty text as well."""
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        name = field.json_name
        if field.is_repeated:
            found[name] = [_plain_value(field, each) for each in value]
        elif (field.has_presence and not message.HasField(field.name)) or value == "":
            found[name] = None
        else:
            found[name] = _plain_value(field, value)
    return found


def _plain_value(field: Any, value: Any) -> Any:  # noqa: ANN401 - any field's, of any kind
    if isinstance(value, Message):
        return plain(value)
    if field.enum_type is None:
        return value
    return phase_name(value)


def phase_name(phase: pb.MigrationPhase) -> str | None:
    """None for one that is not given."""
    return word_of(pb.MigrationPhase, phase) or None
