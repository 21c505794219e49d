"""Logs of every kind of record, with bytes of them overwritten: what all readers are tried on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hypothesis import strategies as st

from tests.support.log_writer import PREPARED, Entry, LogWriter

if TYPE_CHECKING:
    from pathlib import Path

SEGMENT = 2048
START = 3 * SEGMENT


class Harm(NamedTuple):
    """Bytes that are written over the log, at a share of its length."""

    share: float
    data: bytes


entries = st.builds(
    Entry,
    topic=st.sampled_from(["T", "T", "T", "U", "x" * 200]),
    body=st.binary(max_size=120) | st.just(bytes(900)),
    queue_id=st.sampled_from([0, 0, 0, 0, 1, -1]),  # the last is poison
    sys_flag=st.sampled_from([0, 0, 0, PREPARED]),
    born_host=st.sampled_from([("127.0.0.1", 1), ("127.0.0.1", 1), ("::1", 1)]),
)
harms = st.builds(
    Harm,
    st.floats(0, 1),
    st.sampled_from([b"\0", b"\xff", b"x" * 9, bytes(50), bytes(2 * SEGMENT)])
    | st.binary(max_size=30),
)


def write_damaged(
    directory: Path, made: list[Entry], harmed: list[Harm], *, crc_item: bool
) -> bytes:
    """Segments in the directory, the first at START; their bytes."""
    writer = LogWriter(directory, SEGMENT, crc_item=crc_item, start=START)
    writer.extend(made)
    writer.flush()
    paths = sorted(directory.iterdir())
    data = bytearray(b"".join(path.read_bytes() for path in paths))
    for share, harm in harmed:
        at = int(share * (writer.end - START))
        data[at : at + len(harm)] = harm[: len(data) - at]
    for number, path in enumerate(paths):
        path.write_bytes(data[number * SEGMENT : (number + 1) * SEGMENT])
    return bytes(data)
