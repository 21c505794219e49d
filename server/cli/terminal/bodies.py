"""Shows bodies of messages."""

from __future__ import annotations

import base64

from server.cli.terminal.output import say
from server.cli.terminal.screen import one_line

#: Most bytes of a body that a table shows; --json and --raw print all.
SHOWN_BODY_BYTES = 80


def plain_body(stored: bytes, sys_flag: int) -> bytes:
    """The decompressed body; unchanged if that fails."""
    # Imported here, because it imports gRPC: see server_address.
    from kvcq_client.format import BodyError, decompress

    try:
        return decompress(stored, sys_flag)
    except BodyError as error:
        say(f"cannot decompress a body: {error}. It is shown as stored")
        return stored


def body_text(body: bytes) -> str:
    """The body in one line: as text, or its first bytes in hex if it is no text. Cut if long."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        cut = body[: SHOWN_BODY_BYTES // 3]
        return f"{cut.hex(' ')}{'…' if len(cut) < len(body) else ''} ({len(body):,} bytes)"
    if len(text) <= SHOWN_BODY_BYTES:
        return one_line(text)
    return f"{one_line(text[:SHOWN_BODY_BYTES])}… ({len(body):,} bytes)"


def body_fields(body: bytes) -> dict[str, str]:
    """The body for JSON: as text, or in base64 under another name if it is no text."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"bodyBase64": base64.b64encode(body).decode()}
