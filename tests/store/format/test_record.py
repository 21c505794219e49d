"""Records as RocketMQ lays them out; what is not a whole record in its place is none."""

from __future__ import annotations

import struct
from socket import AF_INET6, inet_ntop
from typing import TYPE_CHECKING

import crcmod.predefined
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import CorruptRecordError, InvalidArgumentError
from store.format.record import (
    CRC_ITEM_BYTES,
    CRC_MASK,
    HEADER_V4,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    SCHEDULE_TOPIC,
    Found,
    check_record,
    crc_item,
    dispatch_request,
    java_hash,
    locate,
    message_id,
    pack_blank,
    pack_host,
    parse_message_id,
    store_time_of,
    tag_code_of,
    unpack_host,
    unpack_record,
)
from tests.support.log_writer import COMMIT, PREPARED, ROLLBACK, Entry, LogWriter

if TYPE_CHECKING:
    from pathlib import Path

crc32_oracle = crcmod.predefined.mkPredefinedCrcFun("crc-32")

#: Queue 3, offset 7, at 4096, KEYS, TAGS and UNIQ_KEY in this order.
V1 = bytes.fromhex(
    "0000009cdaa320a73610a68600000003"
    "00000000000000000000000700000000"
    "00001000000000000000018bcfe5687b"
    "7f0000010000d4310000018bcfe569c8"
    "0a00000100002a9f0000000000000000"
    "000000000000000568656c6c6f09546f"
    "706963546573740033" + "4b455953016b31"
    "206b32025441475301546167410255"
    "4e49515f4b455901304130303030303130"
    "443241324139463030303102"
)
V1_CRC_ITEM = bytes.fromhex("5f5f43524333322301" + "3137343435363335383102")
V2_HEAD = bytes.fromhex(
    "00000100daa320ab0edf477700000001"
    "0000000000000000000000" + "2a00000000"
    "000000c8000000300000018bcfe5687b"
    "20010db8000000000000000000000001"
    "0000d4310000018bcfe569c8fe800000"
    "00000000000000000000000100002a9f"
    "0000000200000000000000000000000a"
    "787878787878787878780082255245" + "54"
)

hosts = st.tuples(
    # As inet_ntop writes them: `ipaddress` writes mapped addresses in another way.
    st.one_of(
        st.ip_addresses(v=4).map(str),
        st.binary(min_size=16, max_size=16).map(lambda data: inet_ntop(AF_INET6, data)),
    ),
    st.integers(0, 65535),
)
texts = st.text(
    st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=9
)
entries = st.builds(
    Entry,
    topic=st.from_regex(r"[a-zA-Z0-9_-]{1,140}", fullmatch=True),
    body=st.binary(max_size=200),
    queue_id=st.integers(0, 2**31 - 1),
    properties=st.dictionaries(texts, texts, max_size=4),
    flag=st.integers(-(2**31), 2**31 - 1),
    sys_flag=st.sampled_from([0, 1, PREPARED, COMMIT, ROLLBACK, 0x701]),
    born_time_ms=st.integers(0, 2**62),
    store_time_ms=st.integers(0, 2**42),
    born_host=hosts,
    store_host=hosts,
    reconsume_times=st.integers(0, 100),
    prepared_offset=st.integers(0, 2**62),
)


def record_of(directory: Path, entry: Entry, *, crc_item: bool = True, at: int = 4096) -> bytes:
    writer = LogWriter(directory / "log", 4096, crc_item=crc_item, start=at - at % 4096)
    writer.write_raw(bytes(at % 4096))
    return writer.append(entry).record


@pytest.fixture
def sealed(tmp_path: Path) -> bytes:
    """A record with a CRC item, at 4096."""
    return record_of(
        tmp_path,
        Entry(queue_id=3, queue_offset=7, properties={"KEYS": "k1 k2", "TAGS": "TagA"}),
    )


# --- vectors ----------------------------------------------------------------------------------


def test_golden_v1_record() -> None:
    assert check_record(V1, 0, len(V1), 4096) == (Found.RECORD, 156, "")
    message = unpack_record(V1)
    assert message.topic == "TopicTest"
    assert message.queue_id == 3
    assert message.queue_offset == 7
    assert message.physical_offset == 4096
    assert message.record_size == 156
    assert message.born_time_ms == 1700000000123
    assert message.born_host == ("127.0.0.1", 54321)
    assert message.store_time_ms == 1700000000456
    assert message.store_host == ("10.0.0.1", 10911)
    assert message.body_crc == 907060870
    assert message.body == b"hello"
    assert message.tag == "TagA"
    assert message.keys == ("k1", "k2")
    assert message.properties["UNIQ_KEY"] == "0A0000010D2A2A9F0001"
    assert store_time_of(V1, 0) == 1700000000456


def test_golden_v1_dispatch() -> None:
    assert dispatch_request(V1, 0) == (
        "TopicTest",
        3,
        7,
        4096,
        156,
        2598919,
        1700000000456,
        ("0A0000010D2A2A9F0001", "k1", "k2"),
        (),
        True,
    )


def test_golden_crc_item(tmp_path: Path) -> None:
    assert crc_item(1853654471) == V1_CRC_ITEM
    properties = {"KEYS": "k1 k2", "TAGS": "TagA", "UNIQ_KEY": "0A0000010D2A2A9F0001"}
    record = record_of(tmp_path, Entry(queue_id=3, queue_offset=7, properties=properties))
    assert record.endswith(V1_CRC_ITEM)
    assert check_record(record, 0, 176, 4096).found is Found.RECORD
    assert unpack_record(record).properties == properties


def test_golden_v2_and_ipv6(tmp_path: Path) -> None:
    record = record_of(
        tmp_path,
        Entry(
            topic="%RETRY%" + "g" * 123,
            body=b"x" * 10,
            queue_id=1,
            queue_offset=42,
            born_host=("2001:db8::1", 54321),
            store_host=("fe80::1", 10911),
            reconsume_times=2,
        ),
        crc_item=False,
        at=200,
    )
    assert record.startswith(V2_HEAD)
    assert check_record(record, 0, 256, 200) == (Found.RECORD, 256, "")
    message = unpack_record(record)
    assert message.topic == "%RETRY%" + "g" * 123
    assert message.born_host == ("2001:db8::1", 54321)
    assert message.store_host == ("fe80::1", 10911)
    assert message.sys_flag == 0x30
    assert message.reconsume_times == 2
    assert store_time_of(record, 0) == 1700000000456


def test_golden_blank() -> None:
    assert pack_blank(100).hex() == "00000064cbd43194"
    assert check_record(pack_blank(100) + bytes(92), 0, 100, 0).found is Found.BLANK
    assert struct.pack(">i", MAGIC_BLANK).hex() == "cbd43194"


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("", "0000000000000000"),
        ("TagA", "000000000027a807"),
        ("TagB", "000000000027a808"),
        ("order-created", "ffffffffe897bb69"),
        ("订单", "0000000000113bf3"),
        ("\U0001f600", "00000000001b0d63"),
    ],
)
def test_golden_tag_codes(tag: str, code: str) -> None:
    assert struct.pack(">q", tag_code_of("T", tag, None, 0)).hex() == code


def test_a_delayed_message_carries_its_due_time() -> None:
    assert tag_code_of(SCHEDULE_TOPIC, "TagA", "3", 1000) == 11_000
    assert tag_code_of(SCHEDULE_TOPIC, "TagA", "18", 0) == 7_200_000
    assert tag_code_of(SCHEDULE_TOPIC, "TagA", "99", 0) == 7_200_000  # clamped
    for level in ("0", "-1", "x", None):
        assert tag_code_of(SCHEDULE_TOPIC, "TagA", level, 1000) == 2598919
    assert tag_code_of("Other", "TagA", "3", 1000) == 2598919


@pytest.mark.parametrize(
    ("host", "offset", "text"),
    [
        (("10.0.0.1", 10911), 4096, "0A00000100002A9F0000000000001000"),
        (
            ("fe80::1", 10911),
            200,
            "FE80000000000000000000000000000100002A9F00000000000000C8",
        ),
    ],
)
def test_golden_message_ids(host: tuple[str, int], offset: int, text: str) -> None:
    assert message_id(pack_host(host), offset) == text
    assert parse_message_id(text) == (host, offset)
    assert parse_message_id(text.lower()) == (host, offset)


@pytest.mark.parametrize(
    "text",
    ["", "0A", "0A00000100002A9F00000000000010", "zz" * 16, "0A 0" * 8, "00" * 8 + "FF" * 8],
)
def test_a_bad_message_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="message_id"):
        parse_message_id(text)


def test_the_id_of_a_client_of_rocketmq_is_refused_with_the_command_that_finds_it() -> None:
    with pytest.raises(InvalidArgumentError, match="kvcq query TOPIC ID"):
        parse_message_id("0102FC00000001396A0B1C32E800000000")


def test_java_hash_over_utf16_units() -> None:
    assert java_hash("") == 0
    assert java_hash("polygenelubricants") == -(2**31)
    assert java_hash("Aa") == java_hash("BB")


# --- hosts ------------------------------------------------------------------------------------


@given(hosts)
def test_hosts_round_trip(host: tuple[str, int]) -> None:
    data = pack_host(host)
    assert len(data) == (20 if ":" in host[0] else 8)
    assert unpack_host(data) == host


@pytest.mark.parametrize("host", [("localhost", 1), ("1.2.3", 1), ("10.0.0.1", 2**31), ("", 0)])
def test_a_bad_host_is_refused(host: tuple[str, int]) -> None:
    with pytest.raises(InvalidArgumentError, match="host"):
        pack_host(host)


# --- the CRC against another implementation --------------------------------------------------


@given(st.binary(max_size=300))
def test_body_crc_is_ieee_crc_32_without_its_top_bit(body: bytes) -> None:
    topic = b"\x01T\x00\x00"
    header = HEADER_V4.pack(
        88 + len(body) + len(topic),
        MAGIC_V1,
        crc32_oracle(body) & CRC_MASK,
        *(0, 0, 0, 0, 0, 0),
        bytes(8),
        0,
        bytes(8),
        *(0, 0, len(body)),
    )
    record = header + body + topic
    assert check_record(record, 0, len(record), 0).found is Found.RECORD


def test_crc_of_the_check_digits() -> None:
    assert crc32_oracle(b"123456789") & CRC_MASK == 0x4BF43926


@given(entry=entries)
def test_crc_item_covers_everything_before_it(
    entry: Entry, tmp_path_factory: pytest.TempPathFactory
) -> None:
    record = record_of(tmp_path_factory.mktemp("log"), entry)
    assert record[-CRC_ITEM_BYTES:] == crc_item(crc32_oracle(record[:-CRC_ITEM_BYTES]) & CRC_MASK)


# --- round trips and refusals ----------------------------------------------------------------


@given(entry=entries, sealed=st.booleans())
def test_records_of_another_writer_read_back(
    entry: Entry, sealed: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    writer = LogWriter(tmp_path_factory.mktemp("log"), 65536, crc_item=sealed)
    row = writer.append(entry)
    record = row.record
    assert check_record(record, 0, len(record), 0) == (Found.RECORD, len(record), "")
    message = unpack_record(record)
    assert message.topic == entry.topic
    assert message.body == entry.body
    assert message.queue_id == entry.queue_id
    assert message.flag == entry.flag
    assert message.sys_flag == row.sys_flag
    assert message.born_time_ms == entry.born_time_ms
    assert message.born_host == entry.born_host
    assert message.store_time_ms == entry.store_time_ms == store_time_of(record, 0)
    assert message.store_host == entry.store_host
    assert message.reconsume_times == entry.reconsume_times
    assert message.prepared_transaction_offset == entry.prepared_offset
    request = dispatch_request(record, 0)
    assert request.tag_code == row.tag_code
    assert request.in_queue == row.in_queue
    assert request.keys == (() if row.sys_flag & 0xC == ROLLBACK else row.keys)
    magic = struct.unpack_from(">i", record, 4)[0]
    assert magic == (MAGIC_V1 if len(entry.topic) <= 127 else MAGIC_V2)


def test_light_queues_of_a_record(tmp_path: Path) -> None:
    names = ("%LMQ%a", "%LMQ%b")
    assert dispatch_request(record_of(tmp_path, Entry(light_queues=names)), 0).light_queues == (
        ("%LMQ%a", 0),
        ("%LMQ%b", 0),
    )
    open_transaction = Entry(light_queues=names, sys_flag=PREPARED)
    assert dispatch_request(record_of(tmp_path, open_transaction), 0).light_queues == ()


def test_every_cut_length_is_refused(sealed: bytes) -> None:
    for length in range(len(sealed)):
        assert check_record(sealed, 0, length, 4096).found is Found.NOTHING
        with pytest.raises(CorruptRecordError):
            unpack_record(sealed[:length])


def test_every_flipped_bit_of_a_sealed_record_is_found(sealed: bytes) -> None:
    damaged = memoryview(bytearray(sealed))
    for bit in range(len(sealed) * 8):
        damaged[bit // 8] ^= 1 << bit % 8
        assert check_record(damaged, 0, len(sealed), 4096).found is Found.NOTHING, bit
        with pytest.raises(CorruptRecordError):
            unpack_record(damaged)
        damaged[bit // 8] ^= 1 << bit % 8


@pytest.mark.parametrize("empty_body", [False, True])
def test_a_record_torn_at_any_byte_is_none(tmp_path: Path, empty_body: bool) -> None:
    # What a power loss leaves of the last record: its front, then zeros.
    entry = Entry(body=b"" if empty_body else b"hello", properties={"KEYS": "k1", "TAGS": "T"})
    record = record_of(tmp_path, entry)
    for kept in range(len(record)):
        torn = record[:kept] + bytes(len(record) - kept)
        assert check_record(torn, 0, len(torn), 4096).found is not Found.RECORD, kept


def test_a_record_with_zeroed_front_of_its_crc_item_is_none(sealed: bytes) -> None:
    # A block boundary inside the item: the block before it was never written.
    item_at = len(sealed) - CRC_ITEM_BYTES
    for kept in range(1, CRC_ITEM_BYTES):
        torn = sealed[:item_at] + bytes(CRC_ITEM_BYTES - kept) + sealed[-kept:]
        assert check_record(torn, 0, len(torn), 4096).found is not Found.RECORD, kept


def test_a_record_that_lies_elsewhere_is_none(sealed: bytes) -> None:
    # What a truncation left behind must not come back (hazard H1).
    assert check_record(sealed, 0, len(sealed), 4097).found is Found.NOTHING


def test_properties_without_a_crc_item_are_taken(tmp_path: Path) -> None:
    for text in (b"TAGS\x01TagA\x02", b"TAGS\x01TagA", b"A\x01" + b"x" * 30, b""):
        record = record_of(tmp_path, Entry(properties=text), crc_item=False)
        assert check_record(record, 0, len(record), 4096).found is Found.RECORD


@pytest.mark.parametrize("end", range(8))
def test_fewer_than_8_bytes_are_nothing(end: int) -> None:
    assert check_record(bytes(end), 0, end, 0).found is Found.NOTHING


def test_zeros_are_nothing() -> None:
    checked = check_record(bytes(200), 0, 200, 0)
    assert checked.found is Found.NOTHING
    assert "magic" in checked.reason


@given(st.binary(min_size=91, max_size=200), st.booleans())
def test_no_bytes_make_the_check_fail(data: bytes, second: bool) -> None:
    magic = MAGIC_V2 if second else MAGIC_V1
    record = struct.pack(">ii", len(data) + 8, magic) + data
    checked = check_record(record, 0, len(record), 0)
    if checked.found is Found.RECORD:
        unpack_record(record)


def test_text_that_is_not_utf8_is_corrupt(tmp_path: Path) -> None:
    whole = record_of(tmp_path, Entry(topic="abc", body=b""), crc_item=False)
    topic_at = locate(whole, 0).topic_at
    record = whole[:topic_at] + b"\xff" + whole[topic_at + 1 :]
    assert check_record(record, 0, len(record), 4096).found is Found.RECORD
    with pytest.raises(CorruptRecordError, match="UTF-8"):
        unpack_record(record)
    with pytest.raises(CorruptRecordError, match="UTF-8"):
        dispatch_request(record, 0)
