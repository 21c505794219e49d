"""SQL92 filters: what is refused, three values, and reading on where hardly anything matches."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import InvalidArgumentError
from store.message import Message, PullStatus
from store.reads import SqlFilter, parse_filter
from store.reads.sql import MOST_CHARACTERS
from store.reads.sql.parser import MOST_DEPTH, Parser
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

    from store.reads.sql.conditions import Properties
    from store.reads.sql.values import Truth


@pytest.mark.parametrize(
    ("condition", "at", "why"),
    [
        ("price >", 8, "'the end' where a property, a value or ( belongs"),
        ("price > 'x'", 9, "'x' is no number"),
        ("(price > 1", 11, "'the end' where ) belongs"),
        ("price = NULL", 7, "write IS NULL"),
        ("a = 1 AND b", 11, "write b = TRUE"),
        ("NOT a = 1", 5, "write NOT (a = b)"),
        ("(a > 1) = 5", 9, "compared with a text or a number"),
        ("(a > 1) > 5", 1, "no order"),
        ("a IN (1)", 7, "a text in single quotes"),
        ("5 IN ('5')", 1, "'5' is no property"),
        ("a # 1", 3, "'# 1' begins nothing"),
        ("a = 'eu", 5, "has no closing quote"),
        ("a = 99999999999999999999", 5, "is above"),
        ("a NOT 1", 7, "BETWEEN, IN, CONTAINS"),
        ("a = 1 b = 2", 7, "'b' where the end belongs"),
        ("(" * (MOST_DEPTH + 1), MOST_DEPTH + 1, f"more than {MOST_DEPTH}"),
    ],
)
def test_the_error_names_the_place(condition: str, at: int, why: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        SqlFilter.parse(condition)
    assert f"sql_filter: at character {at}: " in str(caught.value)
    assert why in str(caught.value)


def test_a_long_one_is_not_parsed() -> None:
    with pytest.raises(InvalidArgumentError, match=f"more than {MOST_CHARACTERS}"):
        SqlFilter.parse("a" * (MOST_CHARACTERS + 1))


def test_a_long_chain_is_no_deep_one() -> None:
    chain = " OR ".join(["a = 1"] * (MOST_CHARACTERS // 9))
    assert len(chain) <= MOST_CHARACTERS
    assert judged(chain, {"a": "2"}) is False


def test_tags_and_a_condition_exclude_each_other() -> None:
    assert parse_filter("*", " ") is None
    with pytest.raises(InvalidArgumentError, match="sql_filter"):
        parse_filter("a", "b = 1")


@pytest.mark.parametrize(
    ("condition", "tags"),
    [
        ("TAGS = 'a' AND n > 1", {"a"}),
        ("n > 1 AND 'a' = TAGS", {"a"}),
        ("(TAGS = 'a' AND n > 1) AND m > 1", None),
        ("TAGS = 'a' OR n > 1", None),
        ("NOT (TAGS = 'a')", None),
        ("TAGS <> 'a'", None),
    ],
)
def test_a_tag_that_all_matches_have_is_looked_for_first(
    condition: str, tags: set[str] | None
) -> None:
    wanted = SqlFilter.parse(condition)
    assert wanted is not None
    expected = parse_filter(" || ".join(tags), "") if tags else None
    if expected is None:
        assert wanted.codes is None or condition.startswith("(")
    else:
        assert wanted.codes == expected.codes


def judged(condition: str, properties: Properties) -> object:
    return Parser(condition).parse().ask(properties)


TRUTHS = st.sampled_from([True, False, None])
WORDS = {True: "TRUE = TRUE", False: "TRUE = FALSE", None: "missing = TRUE"}


@given(TRUTHS, TRUTHS, TRUTHS)
def test_three_values(one: Truth, other: Truth, third: Truth) -> None:
    """By Kleene's tables, and by the rule that AND binds closer than OR."""
    rank = {False: 0, None: 1, True: 2}
    back = {value: truth for truth, value in rank.items()}
    a, b, c = (WORDS[each] for each in (one, other, third))
    both = min(rank[one], rank[other])
    assert judged(f"({a}) AND ({b})", {}) is back[both]
    assert judged(f"({a}) OR ({b})", {}) is back[max(rank[one], rank[other])]
    assert judged(f"NOT ({a})", {}) is back[2 - rank[one]]
    assert judged(f"{a} AND {b} OR {c}", {}) is back[max(both, rank[third])]


NUMBERS = st.integers(-(1 << 40), 1 << 40)


@given(NUMBERS, NUMBERS, NUMBERS)
def test_numbers_compare_as_numbers(value: int, low: int, high: int) -> None:
    properties = {"n": str(value)}
    assert judged(f"n > {low}", properties) is (value > low)
    assert judged(f"n <= {low}.0", properties) is (value <= low)
    assert judged(f"{low} <> n", properties) is (value != low)
    assert judged(f"n BETWEEN {low} AND {high}", properties) is (low <= value <= high)
    assert judged(f"n NOT BETWEEN {low} AND {high}", properties) is not (low <= value <= high)


@given(st.text(max_size=60))
def test_any_text_is_a_filter_or_a_refusal(text: str) -> None:
    with suppress(InvalidArgumentError):
        SqlFilter.parse(text)


@pytest.mark.parametrize("every", [1, 7, 1000])
def test_all_that_match_are_read_once_in_order(tmp_path: Path, every: int) -> None:
    """However few match: a pull gives what it found, and says where to go on."""
    with open_small(tmp_path, default_queue_count=1) as store:
        count = 2100
        store.put(
            [Message("t", b"x", properties={"n": str(number % every)}) for number in range(count)]
        )
        wanted = SqlFilter.parse("n = 0")
        found: list[int] = []
        at = pulls = 0
        while at < count:
            pulled = store.pull("t", 0, at, max_messages=10, tag_filter=wanted)
            assert len(pulled.records) <= 10
            assert (pulled.status is PullStatus.FOUND) == bool(pulled.records)
            assert at < pulled.next_offset <= count
            found += pulled.queue_offsets
            at = pulled.next_offset
            pulls += 1
        assert found == list(range(0, count, every))
        assert pulls <= count // every // 10 + 6


def test_what_cannot_be_judged_is_no_match_and_is_counted(tmp_path: Path) -> None:
    with open_small(tmp_path, default_queue_count=1) as store:
        store.put(
            [
                Message("t", b"x", properties={"a": "2", "b": "1"}),
                Message("t", b"x", properties={"a": "two", "b": "1"}),
            ]
        )
        pulled = store.pull("t", 0, 0, tag_filter=SqlFilter.parse("a > b"))
        assert pulled.queue_offsets == [0]
        assert store.statistics()["store.filter_errors"] == 1
