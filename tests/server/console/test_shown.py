"""Values as pages show them."""

from __future__ import annotations

import zlib

import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.console.shown import PREVIEW_CHARACTERS, SHOWN_BYTES, body_of, number, preview, visible


@pytest.mark.parametrize(
    ("value", "wanted"), [(0, "0"), (1234567, "1,234,567"), (2.0, "2"), (1234.567, "1,234.57")]
)
def test_numbers(value: float, wanted: str) -> None:
    assert number(value) == wanted


def test_what_cannot_be_seen_is_marked() -> None:
    assert visible("a\x1b[31m\u202eb\n\tc") == "a�[31m�b\n\tc"


def _body(data: bytes, sys_flag: int = 0) -> pb.StoredMessage:
    return pb.StoredMessage(body=data, sys_flag=sys_flag)


def test_a_text_body() -> None:
    body = body_of(_body("grüße 你好".encode()))
    assert (body.text, body.size, body.is_cut, body.fault) == ("grüße 你好", 14, False, "")
    assert body.hexes.startswith("00000000  67 72 c3 bc c3 9f 65 20 e4 bd a0 e5 a5 bd")
    assert body.hexes.endswith("gr....e ......")


def test_a_body_that_is_no_text() -> None:
    assert body_of(_body(b"\xff\xfe")).text is None
    assert body_of(_body(b"a\0b")).text is None
    assert body_of(_body(b"")).text == ""


def test_a_long_body_is_cut_between_characters() -> None:
    body = body_of(_body(b"a" + "你".encode() * SHOWN_BYTES))
    assert body.is_cut
    assert body.text is not None
    assert len(body.text.encode()) in range(SHOWN_BYTES - 3, SHOWN_BYTES + 1)
    assert set(body.text) == {"a", "你"}
    assert body.size == 1 + 3 * SHOWN_BYTES


def test_a_compressed_body() -> None:
    body = body_of(_body(zlib.compress(b"hello" * 100), sys_flag=1))
    assert (body.text, body.size, body.fault) == ("hello" * 100, 500, "")


def test_a_body_that_does_not_decompress_is_shown_as_it_is_stored() -> None:
    body = body_of(_body(b"no zlib", sys_flag=1))
    assert body.text == "no zlib"
    assert "does not decompress" in body.fault


def test_a_body_in_a_row() -> None:
    assert preview(_body(b"one\n  two\x1b")) == "one two�"
    assert preview(_body(b"x" * 1000)) == "x" * PREVIEW_CHARACTERS + "…"
    assert preview(_body(b"\xff" * 1000)).startswith("ff ff")
    assert preview(_body(zlib.compress(b"x"), sys_flag=1)) == ""
    # Cut in the middle of a character.
    assert preview(_body(b"a" + "你".encode() * 1000)).startswith("a你你")
