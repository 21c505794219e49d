"""Formats values for pages: numbers, bodies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvcq_client.format import BodyError, decompress

if TYPE_CHECKING:
    from kvcq_client.pb.v1 import kvcq_pb2 as pb

#: Bytes of a body that are shown on its own page, and in a row of a table.
SHOWN_BYTES = 16 << 10
PREVIEW_CHARACTERS = 80
_PREVIEW_BYTES = 4 * PREVIEW_CHARACTERS
_HEX_ROW = 16


def number(value: float) -> str:
    """With commas; two decimals unless it is a whole number."""
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.2f}"


@dataclass(frozen=True, slots=True)
class Body:
    """A decompressed body, cut after SHOWN_BYTES."""

    size: int  # bytes of all of it
    text: str | None  # None: it is no text
    hexes: str
    is_cut: bool
    fault: str  # why the stored form is shown; otherwise empty


def preview(message: pb.StoredMessage) -> str:
    """The beginning of a body in one line. Empty for a compressed one, since decompressing takes a
    thread."""
    if message.sys_flag & 1:
        return ""
    data = message.body[:_PREVIEW_BYTES]
    text = _text_of(data, is_cut=len(message.body) > len(data))
    if text is None:
        text, most = data.hex(" "), PREVIEW_CHARACTERS - PREVIEW_CHARACTERS % 3
    else:
        text, most = visible(" ".join(text.split())), PREVIEW_CHARACTERS
    is_all = len(text) <= most and len(data) == len(message.body)
    return text if is_all else f"{text[:most]}…"


def body_of(message: pb.StoredMessage) -> Body:
    """The message's body. Slow for a large compressed one, so do not call it in the event loop."""
    fault = ""
    try:
        plain = decompress(message.body, message.sys_flag)
    except BodyError as error:
        plain, fault = message.body, str(error)
    shown = plain[:SHOWN_BYTES]
    is_cut = len(plain) > len(shown)
    text = _text_of(shown, is_cut=is_cut)
    return Body(
        len(plain), None if text is None else visible(text), _hex_rows(shown), is_cut, fault
    )


def visible(text: str) -> str:
    """The text with marks for invisible characters and those that change its direction."""
    return "".join(one if one.isprintable() or one in "\n\t" else "�" for one in text)


def _text_of(data: bytes, *, is_cut: bool) -> str | None:
    """The text as UTF-8, without a character cut in two. None if it is not text."""
    for left_out in range(4 if is_cut else 1):
        try:
            text = data[: len(data) - left_out].decode()
        except UnicodeDecodeError:
            continue
        return None if "\0" in text else text
    return None


def _hex_rows(data: bytes) -> str:
    rows = []
    for at in range(0, len(data), _HEX_ROW):
        row = data[at : at + _HEX_ROW]
        letters = "".join(chr(one) if 32 <= one < 127 else "." for one in row)
        rows.append(f"{at:08x}  {row.hex(' '):<{3 * _HEX_ROW - 1}}  {letters}")
    return "\n".join(rows)
