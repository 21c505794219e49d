"""The places of a record's fields: the table in words, the packer and the client all agree."""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING

import pytest

from kvcq_client.format import records as client
from kvcq_client.format.records import StoredMessage
from store.format import layout, record
from store.format.layout import AT, BACK, FRONT, HOST_V4_BYTES, packing, picking
from store.format.record import HEADER_V4, MAGIC_V1, locate, store_time_of, unpack_record
from tests.support.log_writer import Entry, LogWriter

if TYPE_CHECKING:
    from pathlib import Path

_HOSTS = ("10.1.2.3", "2001:db8::7")


def test_the_table_in_words_names_these_fields_at_these_places() -> None:
    rows = re.findall(
        r"^\| (\d[\d+BS]*) *\| +(\d+) \| (\w+) +\| (\w+) ", record.__doc__ or "", re.M
    )
    codes = {"i32": "i", "i64": "q"}
    told = [(name, codes[kind]) for _, _, kind, name in rows if kind in codes]
    packed = [field for field in (*FRONT, ("store_time_ms", "q"), *BACK) if field in told]
    assert packed == told[: len(packed)] == [*FRONT, ("store_time_ms", "q"), *BACK]
    for place, _, _, name in rows:
        if name in AT:
            assert AT[name] == sum(
                HOST_V4_BYTES if at in "BS" else int(at) for at in place.split("+")
            )


def test_what_is_picked_is_what_was_packed() -> None:
    values = dict(zip(AT, HEADER_V4.unpack(bytes(range(HEADER_V4.size))), strict=True))
    for name, value in values.items():
        assert picking(name).unpack_from(bytes(range(HEADER_V4.size))) == (value,)
    some = ("magic", "queue_offset", "store_host", "body_length")
    expected = tuple(values[name] for name in some)
    assert picking(*some).unpack_from(bytes(range(HEADER_V4.size))) == expected
    assert packing(FRONT).size == layout.HOSTS_AT
    assert layout.BACK_AT + packing(BACK).size == layout.BODY_AT


@pytest.mark.parametrize(("born", "store"), list(product(_HOSTS, _HOSTS)))
def test_the_client_finds_every_field_where_the_store_does(
    tmp_path: Path, born: str, store: str
) -> None:
    entry = Entry(born_host=(born, 1234), store_host=(store, 99), flag=7, reconsume_times=3)
    data = LogWriter(tmp_path, 1 << 14).append(entry).record
    ours, theirs = unpack_record(data), StoredMessage(data, 0)
    names = (
        "queue_id flag physical_offset sys_flag born_time_ms store_time_ms reconsume_times topic"
    )
    for name in (*names.split(), "body"):
        assert getattr(theirs, name) == getattr(ours, name), name
    assert store_time_of(data, 0) == ours.store_time_ms
    assert locate(data, 0).body_end - locate(data, 0).body_at == len(ours.body)
    assert theirs.born_host.endswith(":1234")
    assert theirs.store_host.endswith(":99")


def test_the_clients_own_numbers_are_the_stores() -> None:
    assert AT["queue_offset"] == client._QUEUE_OFFSET_AT
    assert client._FLAGS_AT == layout.SYS_FLAG_BYTE_AT
    assert client._BODY_AT == layout.BODY_AT
    assert (client.MAGIC_V1, client._MIN_BYTES) == (MAGIC_V1, record.MIN_RECORD_BYTES)
    assert (client._CRC_BYTES, client._CRC_MASK) == (record.CRC_ITEM_BYTES, record.CRC_MASK)
    assert client._HOSTS_BYTES == layout._HOSTS_BYTES
