"""server/fronts/frames.py: bodies come back as they were, frames in whatever pieces they come."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from server.fronts import frames
from server.fronts.frames import Ending, Link, Opening
from tests.support.until import LIMIT_S

if TYPE_CHECKING:
    from server.fronts.frames import Metadata

_NAMES = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=20)
_METADATA = st.lists(st.tuples(_NAMES, st.one_of(st.text(), st.binary())), max_size=5).map(tuple)


@given(
    st.integers(0, 65_535),
    st.floats(0, 1e9),
    st.text(max_size=60),
    _METADATA,
    st.none() | st.binary(),
)
def test_an_opening_comes_back(
    method: int, deadline_s: float, peer: str, metadata: Metadata, request: bytes | None
) -> None:
    body = frames.pack_opening(method, deadline_s, peer, metadata, request)
    opening = frames.unpack_opening(body)
    assert opening == Opening(method, deadline_s, peer, opening.metadata, request)
    assert frames.unpack_metadata(opening.metadata) == metadata


@given(st.integers(0, 16), st.text(), _METADATA)
def test_an_ending_comes_back(code: int, details: str, metadata: Metadata) -> None:
    ending = Ending(code, details, metadata)
    assert frames.unpack_ending(frames.pack_ending(ending)) == ending


def _same(link: Link) -> Link:
    return link


_SIZES = st.one_of(
    st.integers(0, 100),
    st.sampled_from([frames.BUFFER_BYTES - 9, frames.BUFFER_BYTES - 8, frames.BUFFER_BYTES * 3]),
)


@given(st.lists(_SIZES, max_size=12), st.data())
def test_frames_come_whole_from_pieces_of_any_size(sizes: list[int], data: st.DataObject) -> None:
    async def check() -> None:
        taken: list[tuple[int, int, bytes]] = []
        views = data.draw(st.booleans())
        link = Link(lambda *frame: taken.append(frame), lambda: None, gives_views=views)
        sent = [(at % 14 + 1, at, bytes([at]) * size) for at, size in enumerate(sizes)]
        stream = b"".join(
            frames._HEADER.pack(len(body), kind, call) + body for kind, call, body in sent
        )
        at = 0
        while at < len(stream):
            room = link.get_buffer(-1)
            assert len(room)
            piece = min(len(room), len(stream) - at)
            piece = data.draw(st.sampled_from([piece, min(piece, 7), max(1, piece // 2)]))
            room[:piece] = stream[at : at + piece]
            link.buffer_updated(piece)
            at += piece
        assert taken == sent
        for _, _, body in taken:
            is_large = len(body) > frames.BUFFER_BYTES
            assert isinstance(body, memoryview if views and is_large else bytes)
        assert len(link._buffer) == frames.BUFFER_BYTES, "a large buffer is kept for no one"

    asyncio.run(check())


async def test_what_is_sent_goes_over_a_socket_in_order_and_the_end_is_noticed() -> None:
    loop = asyncio.get_running_loop()
    taken: list[tuple[int, int, bytes]] = []
    ends = [asyncio.Event(), asyncio.Event()]
    links = [Link(lambda *frame: taken.append(frame), ends[0].set), Link(print, ends[1].set)]
    for link, one in zip(links, socket.socketpair(), strict=True):
        one.setblocking(False)
        await loop.create_unix_connection(partial(_same, link), sock=one)
    sent = [(frames.MESSAGE, at, b"%d" % at * (at % 9 * 10_000)) for at in range(100)]
    for kind, call, body in sent:
        links[1].send(kind, call, body)
    links[1].close()
    async with asyncio.timeout(LIMIT_S):
        await ends[0].wait()
        await ends[1].wait()
    assert taken == sent
