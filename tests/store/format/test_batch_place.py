"""Each record of a batch says where it stands in it; records that are none say nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import InvalidArgumentError
from store.format.batch_place import BatchPlace, place_of
from store.format.preparing import prepare
from store.format.record import unpack_record
from store.log.batch_encoder import BatchEncoder
from store.log.queue_offsets import Hot
from store.message import Host, Message
from tests.support.log_writer import Entry, LogWriter

if TYPE_CHECKING:
    from pathlib import Path

HOSTS: list[Host] = [("10.0.0.1", 1), ("2001:db8::1", 1)]


def encoded(messages: list[Message], begin: int | None, store_host: Host) -> list[bytes]:
    encoder = BatchEncoder(store_host, crc_item=True)
    hot = Hot()
    hot.queues["T", 0] = 0
    prepared = [prepare(message, index, 1 << 20, 9) for index, message in enumerate(messages)]
    offset = begin or 0
    made = encoder.encode(messages, prepared, 0, hot, offset, 1 << 30, 7, begin)
    data = b"".join(made.parts)
    return [data[each[3] - offset : each[3] - offset + each[4]] for each in made.requests]


@given(
    sizes=st.lists(st.integers(0, 300), min_size=2, max_size=20),
    begin=st.integers(0, 1 << 45),
    born=st.sampled_from(HOSTS),
    store_host=st.sampled_from(HOSTS),
)
def test_records_of_a_batch_say_where_they_stand(
    sizes: list[int], begin: int, born: Host, store_host: Host
) -> None:
    messages = [Message("T", b"x" * size, born_host=born) for size in sizes]
    distance = 0
    for index, record in enumerate(encoded(messages, begin, store_host)):
        is_last = index == len(sizes) - 1
        assert place_of(record, 0) == BatchPlace(index, distance, is_last)
        unpack_record(record)
        distance += len(record)


@pytest.mark.parametrize("store_host", HOSTS)
def test_separate_messages_have_no_place(store_host: Host) -> None:
    for record in encoded([Message("T", b"x")] * 3, None, store_host):
        assert place_of(record, 0) is None
        assert unpack_record(record).prepared_transaction_offset == 0


def test_a_message_of_a_transaction_keeps_what_its_producer_gave() -> None:
    for message in (
        Message("T", b"x", prepared_transaction_offset=77),
        Message("T", b"x", sys_flag=0x8, prepared_transaction_offset=77),
    ):
        (record,) = encoded([message], None, HOSTS[0])
        assert place_of(record, 0) is None
        assert unpack_record(record).prepared_transaction_offset == 77


def test_a_place_cannot_be_forged() -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        prepare(Message("T", b"x", prepared_transaction_offset=-1), 0, 9, 9)
    assert refused.value.field == "messages[0].prepared_transaction_offset"


def test_other_writers_records_have_no_place(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "log", 1 << 16)
    for entry in (Entry(), Entry(prepared_offset=1 << 40, sys_flag=0x8)):
        row = writer.extend([entry])[0]
        assert place_of(row.record, 0) is None
