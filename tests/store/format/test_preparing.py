"""What is checked of a message, and what is made of it before its place is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import InvalidArgumentError
from store.format.batch_mark import BatchMark
from store.format.limits import MAX_KEYS
from store.format.preparing import PLAIN, PlainBatch, prepare, prepare_all
from store.format.properties import MAX_PROPERTIES_BYTES, light_item
from store.format.record import CRC_ITEM_BYTES, dispatch_request
from store.message import FEW, Message
from tests.support.log_writer import Entry, LogWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PLAIN_MESSAGE = Message("T", b"body")


def refused(message: Message, *, max_body: int = 100, max_light: int = 3) -> InvalidArgumentError:
    with pytest.raises(InvalidArgumentError) as caught:
        prepare(message, 4, max_body, max_light)
    return caught.value


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"body": b"x" * 101}, "body"),
        ({"body": "text"}, "body"),
        ({"body": bytearray(b"x")}, "body"),
        ({"queue_id": -1}, "queue_id"),
        ({"flag": 2**31}, "flag"),
        ({"flag": -(2**31) - 1}, "flag"),
        ({"sys_flag": 0x10}, "sys_flag"),
        ({"sys_flag": 0x20}, "sys_flag"),
        ({"sys_flag": 0x80}, "sys_flag"),
        ({"sys_flag": -1}, "sys_flag"),
        ({"born_time_ms": 2**63}, "born_time_ms"),
        ({"reconsume_times": 2**31}, "reconsume_times"),
        ({"prepared_transaction_offset": 2**63}, "prepared_transaction_offset"),
        ({"tag": "a||b"}, "tag"),
        ({"tag": " a"}, "tag"),
        ({"tag": "a\x01"}, "tag"),
        ({"tag": "a\x02"}, "tag"),
        ({"tag": "\ud800"}, "tag"),
        ({"keys": ("a b",)}, "keys"),
        ({"keys": ("",)}, "keys"),
        ({"keys": ("a\x02",)}, "keys"),
        ({"keys": ("\udfff",)}, "keys"),
        ({"light_queues": ("a",)}, "light_queues"),
        ({"light_queues": ("%LMQ%",)}, "light_queues"),
        ({"light_queues": ("%LMQ%a,b",)}, "light_queues"),
        ({"light_queues": ("%LMQ%a,%LMQ%b",)}, "light_queues"),
        ({"light_queues": ("%LMQ%a", "%LMQ%b", "b")}, "light_queues"),
        ({"light_queues": ("%LMQ%" + "a" * (1 << 15),)}, "light_queues"),
        ({"light_queues": tuple(f"%LMQ%{n}" for n in range(4))}, "light_queues"),
        ({"light_queues": ("%LMQ%a",), "topic": "%RETRY%g"}, "light_queues"),
        ({"light_queues": ("%LMQ%a",), "topic": "SCHEDULE_TOPIC_XXXX"}, "light_queues"),
        ({"light_queues": ("%LMQ%a",), "topic": "rmq_sys_x"}, "light_queues"),
        ({"light_queues": ("%LMQ%a",), "sys_flag": 0x4}, "light_queues"),
        ({"light_queues": ("%LMQ%a",), "sys_flag": 0xC}, "light_queues"),
        ({"properties": {"": "x"}}, "properties['']"),
        ({"properties": {"a": ""}}, "properties['a']"),
        ({"properties": {"a\x01": "x"}}, "properties['a\\x01']"),
        ({"properties": {"a": "x\x02"}}, "properties['a']"),
        ({"properties": {"a": "\ud800"}}, "properties['a']"),
        ({"properties": {"a": 1}}, "properties"),
        *(
            ({"properties": {name: "x"}}, f"properties[{name!r}]")
            for name in (
                *("TAGS", "KEYS", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"),
                *("__CRC32#", "INNER_NUM", "INNER_BASE", "DELAY"),
            )
        ),
    ],
)
def test_a_bad_field_is_named(change: dict[str, Any], field: str) -> None:
    assert refused(PLAIN_MESSAGE._replace(**change)).field == f"messages[4].{field}"


def test_limits_are_inclusive() -> None:
    message = Message(
        "T",
        b"x" * 100,
        flag=-(2**31),
        sys_flag=0x70F & ~0xC,
        born_time_ms=2**63 - 1,
        reconsume_times=2**31 - 1,
        light_queues=("%LMQ%a", "%LMQ%b", "%LMQ%c"),
    )
    assert prepare(message, 0, 100, 3).light_queues == message.light_queues


def test_a_light_queue_given_twice_counts_once() -> None:
    message = PLAIN_MESSAGE._replace(light_queues=("%LMQ%a",) * 9 + ("%LMQ%b",))
    assert prepare(message, 0, 100, 2).light_queues == ("%LMQ%a", "%LMQ%b")


@pytest.mark.parametrize("kind", ["properties", "keys", "tag"])
def test_properties_longer_than_a_record_can_say_are_refused(kind: str) -> None:
    # 32767 bytes, with the 20 of the CRC item: the length is a signed 16-bit number.
    most = MAX_PROPERTIES_BYTES - CRC_ITEM_BYTES

    def message(length: int) -> Message:
        match kind:
            case "properties":
                return PLAIN_MESSAGE._replace(properties={"a": "x" * (length - 3)})
            case "keys":
                return PLAIN_MESSAGE._replace(keys=("x" * (length - 6),))
            case _:
                return PLAIN_MESSAGE._replace(tag="x" * (length - 6))

    assert len(prepare(message(most), 0, 100, 3).properties) == most
    error = refused(message(most + 1))
    assert error.field == "messages[4].properties"
    assert "32767" in error.reason


@given(
    names=st.lists(st.from_regex(r"%LMQ%[a-z]{1,250}", fullmatch=True), max_size=200, unique=True),
    more=st.integers(0, 40_000),
    tag=st.sampled_from(["", "t" * 300]),
)
def test_light_queues_that_are_taken_fit_at_whatever_offset(
    names: list[str], more: int, tag: str
) -> None:
    # What a text of so many characters leaves room for, and a little beyond.
    several = [f"%LMQ%{n:08}" for n in range(more % 1600)]
    message = Message("T", b"x", tag=tag, light_queues=(*names, *several))
    light = outcome(lambda: [prepare(message, 0, 100, 4096)])
    many = outcome(lambda: [*prepare_all([message] * FEW, 100, 4096)][:1])
    assert many == light
    if not isinstance(light, list):
        return
    (found,) = light
    last = [10**10 - 1] * len(found.light_queues)
    whole = found.properties
    if last:
        whole += light_item(",".join(found.light_queues), last)
    assert len(whole) + CRC_ITEM_BYTES <= MAX_PROPERTIES_BYTES


def test_a_fan_out_that_will_not_fit_later_is_refused_at_once_and_told_how_many_fit() -> None:
    def names(count: int) -> tuple[str, ...]:
        return tuple(f"%LMQ%{number:09}" for number in range(count))

    wide = PLAIN_MESSAGE._replace(light_queues=names(1900))
    for prepared in (lambda: prepare(wide, 4, 100, 4096), lambda: prepare_all([wide], 100, 4096)):
        with pytest.raises(InvalidArgumentError, match="1257 names of 14 characters fit"):
            prepared()
    assert len(prepare(wide._replace(light_queues=names(1257)), 0, 100, 4096).light_queues) == 1257
    assert refused(wide._replace(light_queues=names(1258)), max_light=4096).field == (
        "messages[4].light_queues"
    )


def test_any_message_of_a_numbered_batch_has_room_for_its_mark() -> None:
    # Which record carries it depends on where a segment ends: that must not decide.
    mark = BatchMark("p", 0, 3, 0, 1)
    most = MAX_PROPERTIES_BYTES - CRC_ITEM_BYTES - mark.most_bytes
    last = mark._replace(next_sequence=10**19 - 1).item((1 << 63) - 1)
    assert len(last) <= mark.most_bytes
    for at in range(3):
        for over in (0, 1):
            batch = [PLAIN_MESSAGE] * 3
            batch[at] = PLAIN_MESSAGE._replace(properties={"a": "x" * (most - 3 + over)})
            assert len(prepare_all(batch, 100, 3)) == 3
            if over:
                with pytest.raises(InvalidArgumentError) as caught:
                    prepare_all(batch, 100, 3, mark=mark)
                assert caught.value.field == f"messages[{at}].properties"
            else:
                assert len(prepare_all(batch, 100, 3, mark=mark)) == 3


@pytest.mark.parametrize(
    "change", [{"sys_flag": 0x4}, {"sys_flag": 0x8}, {"prepared_transaction_offset": 5}]
)
@pytest.mark.parametrize("count", [2, FEW])
def test_a_message_of_a_transaction_is_no_part_of_a_batch(
    change: dict[str, Any], count: int
) -> None:
    batch = [PLAIN_MESSAGE] * count
    batch[1] = PLAIN_MESSAGE._replace(**change)
    with pytest.raises(InvalidArgumentError, match="append the message alone") as caught:
        prepare_all(batch, 100, 3, is_batch=True)
    assert caught.value.field == f"messages[1].{next(iter(change))}"
    assert len(prepare_all(batch, 100, 3)) == count


def test_a_plain_message_needs_nothing() -> None:
    assert prepare(PLAIN_MESSAGE, 0, 100, 3) is PLAIN
    assert prepare_all([PLAIN_MESSAGE], 100, 3)[0] is PLAIN


def test_a_plain_batch_has_its_columns() -> None:
    batch = [PLAIN_MESSAGE._replace(queue_id=number, born_time_ms=7) for number in range(FEW)]
    prepared = prepare_all(batch, 100, 3)
    assert isinstance(prepared, PlainBatch)
    assert [*prepared] == [PLAIN] * FEW
    assert [*prepared.messages] == batch
    assert [*prepared.messages[5:7]] == batch[5:7]
    batch[-1] = batch[-1]._replace(born_host=("10.0.0.9", 1))
    assert not isinstance(prepare_all(batch, 100, 3), PlainBatch)


def test_a_batch_in_light_queues_has_its_columns() -> None:
    names = [(), ("%LMQ%a",), ("%LMQ%b", "%LMQ%a", "%LMQ%$parent$c")]
    batch = [PLAIN_MESSAGE._replace(light_queues=names[at % 3]) for at in range(FEW)]
    prepared = prepare_all(batch, 100, 3)
    assert isinstance(prepared, PlainBatch)
    assert prepared.light is not None
    assert [*prepared] == [PLAIN._replace(light_queues=names[at % 3]) for at in range(FEW)]
    assert [*prepared.messages] == batch


@given(
    st.lists(
        st.sampled_from(
            [
                (),
                ("%LMQ%a",),
                ("%LMQ%b", "%LMQ%a"),
                ("%LMQ%a", "%LMQ%a"),
                ("%LMQ%a", "%LMQ%b", "%LMQ%c", "%LMQ%d"),
                ("%LMQ%",),
                ("",),
                ("a",),
                ("%LMQ%a,%LMQ%b",),
                ("%LMQ%" + "x" * 250,),
                ("%LMQ%" + "x" * 251,),
                ("%LMQ%größe",),
                ("%LMQ%\udc00",),
                ("%LMQ%a b",),
            ]
        ),
        max_size=3,
    ),
    st.sampled_from(["T", "rmq_sys_T", "%RETRY%g", "SCHEDULE_TOPIC_XXXX"]),
    st.sampled_from([(), ("%LMQ%a", "%LMQ%b")]),
)
def test_light_queues_are_checked_as_one_by_one(
    lists: list[tuple[str, ...]], topic: str, others: tuple[str, ...]
) -> None:
    messages = [
        *[PLAIN_MESSAGE._replace(light_queues=others)] * FEW,
        *[PLAIN_MESSAGE._replace(topic=topic, light_queues=names) for names in lists],
    ]
    assert outcome(lambda: [*prepare_all(messages, 100, 3)]) == outcome(
        lambda: [prepare(message, index, 100, 3) for index, message in enumerate(messages)]
    )


@pytest.mark.parametrize("queue_id", [0, -1])
@pytest.mark.parametrize("names", [None, [], ["%LMQ%b"], {"%LMQ%b"}, "", ("%LMQ%b", 5), (None,)])
def test_whatever_names_they_are_they_are_taken_as_one_by_one(names: Any, queue_id: int) -> None:  # noqa: ANN401 - wrong ones, too
    messages = [
        PLAIN_MESSAGE._replace(queue_id=queue_id),
        *[PLAIN_MESSAGE._replace(light_queues=("%LMQ%a",))] * FEW,
        PLAIN_MESSAGE._replace(light_queues=names),
    ]
    assert outcome(lambda: [*prepare_all(messages, 100, 3)]) == outcome(
        lambda: [prepare(message, index, 100, 3) for index, message in enumerate(messages)]
    )


def outcome(prepared: Callable[[], Sequence[object]]) -> object:
    try:
        return prepared()
    except InvalidArgumentError as error:
        return error.field, error.reason
    except TypeError:
        return TypeError


numbers = st.sampled_from([0, 1, -1, 4, 1 << 31, (1 << 63) - 1, 1 << 63, -(1 << 63) - 1, 1.0])
some_messages = st.builds(
    Message,
    st.just("T"),
    st.sampled_from([b"", b"body", b"x" * 100, b"x" * 101, bytearray(b"body"), "body"]),
    queue_id=st.sampled_from([0, 3, -1]),
    tag=st.sampled_from(["", "", "tag", "a||b"]),
    keys=st.sampled_from([(), (), ("key",), ("two words",)]),
    light_queues=st.sampled_from([(), (), ("%LMQ%a",), ("a",)]),
    properties=st.sampled_from([None, None, {}, {"a": "b"}, {"TAGS": "t"}]),
    flag=numbers,
    sys_flag=st.sampled_from([0, 0, 4, 8, 0x10]),
    born_time_ms=numbers,
    reconsume_times=numbers,
    prepared_transaction_offset=numbers,
)


@given(
    st.lists(some_messages | st.just(PLAIN_MESSAGE), max_size=4),
    st.sampled_from([0, 0, FEW]),
)
def test_many_are_prepared_as_one_by_one(messages: list[Message], plain: int) -> None:
    messages = [PLAIN_MESSAGE] * plain + messages
    assert outcome(lambda: [*prepare_all(messages, 100, 3)]) == outcome(
        lambda: [prepare(message, index, 100, 3) for index, message in enumerate(messages)]
    )


words = st.text(
    st.characters(exclude_characters="\x01\x02 ", exclude_categories=["Cs"]), min_size=1, max_size=6
)


@given(
    tag=words.filter(lambda tag: "||" not in tag and tag.strip() == tag),
    keys=st.lists(words, max_size=3).map(tuple),
    unique=st.none() | words,
)
def test_prepared_is_what_parsing_finds(
    tag: str,
    keys: tuple[str, ...],
    unique: str | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    properties = {"UNIQ_KEY": unique, "x": "y"} if unique else None
    prepared = prepare(PLAIN_MESSAGE._replace(tag=tag, keys=keys, properties=properties), 0, 9, 9)
    writer = LogWriter(tmp_path_factory.mktemp("log"), 4096)
    parsed = dispatch_request(writer.append(Entry(properties=prepared.properties)).record, 0)
    assert parsed.keys == prepared.keys
    assert parsed.tag_code == prepared.tag_code


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (Message("T", b"", keys=tuple(map(str, range(MAX_KEYS + 1)))), "keys"),
        (Message("T", b"", properties={f"p{n}": "v" for n in range(8192)}), "properties"),
        (Message("T", b"", tag="x" * 32_768), "tag"),
        (Message("T", b"", keys=("x" * 32_768,)), "keys"),
        (Message("T", b"", properties={"p": "x" * 32_767}), "properties"),
        (Message("T", b"", light_queues=("%LMQ%" + "x" * 300,)), "light_queues"),
    ],
)
def test_what_is_too_long_is_refused_by_its_length(message: Message, field: str) -> None:
    with pytest.raises(InvalidArgumentError, match="more than") as caught:
        prepare(message, 3, 1 << 20, 4096)
    assert caught.value.field == f"messages[3].{field}"
    assert len(str(caught.value)) < 200  # the text itself is not repeated
