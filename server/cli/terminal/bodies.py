"""Bodies of messages, as they are shown."""

from __future__ import annotations

import base64

from server.cli.terminal.output import say
from server.cli.terminal.screen import one_line

#: Bytes of a body that a table shows; --json and --raw have all of it.
SHOWN_BODY_BYTES = 80


def plain_body(stored: bytes, sys_flag: int) -> bytes:
    """The decompressed body; unchanged if that fails."""
    # Here, since it brings gRPC: see server_address.
    from kvcq_client.format import BodyError, decompress

    try:
        return decompress(stored, sys_flag)
    except BodyError as error:
        say(f"cannot decompress a body: {error}. It is shown as stored")
        return stored


def body_text(body: bytes) -> str:
    """The body in a line: text if it is text, otherwise its first bytes in hex; cut when long."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        cut = body[: SHOWN_BODY_BYTES // 3]
        return f"{cut.hex(' ')}{'…' if len(cut) < len(body) else ''} ({len(body):,} bytes)"
    if len(text) <= SHOWN_BODY_BYTES:
        return one_line(text)
    return f"{one_line(text[:SHOWN_BODY_BYTES])}… ({len(body):,} bytes)"


def body_fields(body: bytes) -> dict[str, str]:
    """The body for a program; one that is not text is given in base64 under another name."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"bodyBase64": base64.b64encode(body).decode()}
