"""Bodies that producers compressed are read as they were sent, and as they are stored."""

from __future__ import annotations

import sys
import zlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lz4 import frame as lz4_frame

from kvcq_client import CorruptRecordError, Start
from kvcq_client.format import compression
from kvcq_client.format.compression import BodyError, decompress
from store.message import Message

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcq_client import AsyncClient
    from tests.support.serving import Served

KINDS: dict[int, Callable[[bytes], bytes]] = {
    0x001: zlib.compress,
    0x101: lz4_frame.compress,
    0x201: zstd.compress,
    0x301: zlib.compress,
}
BODY = b"a body of an order, " * 500


@pytest.mark.parametrize("sys_flag", KINDS)
@given(body=st.binary(max_size=2000))
def test_a_compressed_body_comes_back(sys_flag: int, body: bytes) -> None:
    assert decompress(KINDS[sys_flag](body), sys_flag) == body


def test_a_plain_body_is_left_alone() -> None:
    assert decompress(BODY, 0x30) is BODY


@pytest.mark.parametrize("sys_flag", KINDS)
def test_a_body_that_is_cut_or_changed_is_refused(sys_flag: int) -> None:
    stored = KINDS[sys_flag](BODY)
    for bad in (stored[: len(stored) // 2], b"no such format", b""):
        with pytest.raises(BodyError):
            decompress(bad, sys_flag)


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(BodyError, match="0x400"):
        decompress(BODY, 0x401)


@pytest.mark.parametrize("sys_flag", KINDS)
def test_a_body_that_would_fill_the_memory_is_refused(
    sys_flag: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = KINDS[sys_flag](bytes(100_001))
    monkeypatch.setattr(compression, "MAX_BODY_BYTES", 100_000)
    with pytest.raises(BodyError, match="more than"):
        decompress(stored, sys_flag)
    monkeypatch.setattr(compression, "MAX_BODY_BYTES", 100_001)
    assert len(decompress(stored, sys_flag)) == 100_001


async def test_readers_get_compressed_messages_as_they_were_sent(
    served: Served, client: AsyncClient
) -> None:
    store = served.store
    for sys_flag, compress in KINDS.items():
        store.put([Message("t", compress(BODY), sys_flag=sys_flag, keys=("k",), queue_id=0)])
    store.put([Message("t", b"not compressed at all", sys_flag=0x201, queue_id=0)])
    pulled = await client.pull("t", 0, 0)
    *good, bad = pulled.messages
    assert [message.body for message in good] == [BODY] * len(KINDS)
    assert [message.raw_body for message in good] == [kind(BODY) for kind in KINDS.values()]
    assert all(message.is_compressed for message in pulled.messages)
    assert len(repr(good[0])) < 200  # and repr needs no decompression, which may fail
    assert "offset 4" in repr(bad)
    with pytest.raises(CorruptRecordError, match="queue offset 4"):
        _ = bad.body
    assert bad.raw_body == b"not compressed at all"
    assert [one.body for one in (await client.query("t", "k")).messages] == [BODY] * len(KINDS)
    assert (await client.get(good[1].message_id)).body == BODY
    async with await client.consumer("t", start=Start.EARLIEST) as consumer:
        read = [message async for message in consumer.to_end()]
    assert [message.body for message in read[:-1]] == [BODY] * len(KINDS)
