"""SQL92 filters against what the broker of RocketMQ 5.5.0 answered, as it was recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store.errors import InvalidArgumentError
from store.format import TAGS
from store.message import Message
from store.reads import SqlFilter
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.message_store import MessageStore

#: The number of each is its place.
MESSAGES: list[dict[str, str]] = [
    {},
    {"n": "5"},
    {"n": "15"},
    {"n": "abc"},
    {"s": "x"},
    {"s": "y", "n": "5"},
    {"b": "true"},
    {"b": "TRUE", "s": "it's"},
    {"f": "1.5"},
    {"n": "-3", "s": "xyz"},
    {"t": "1", TAGS: "TagA"},
    {"n": ""},
    {"n": "1e3"},
    {"n": "0x10"},
    {"N": "7"},
    {"n": "5.0"},
    {"a": "3", "c": "10"},
    {"a": "10", "c": "3"},
]
ALL = range(len(MESSAGES))
#: Condition, and the messages that matched.
ANSWERS: list[tuple[str, list[int]]] = [
    ("n > 4", [1, 2, 5]),
    ("n < 5", [9]),
    ("n <> 5", [2, 9]),
    ("n <> '5'", [2, 3, 9, 12, 13, 15]),
    ("5 < n", [2]),
    ("n IS NOT NULL", [1, 2, 3, 5, 9, 12, 13, 15]),
    ("NOT (n > 4)", [9]),
    ("n > 4 AND s = 'y'", [5]),
    ("n > 4 OR missing = 1", [1, 2, 5]),
    ("missing <> 1", []),
    ("s <> 'x'", [5, 7, 9]),
    ("s NOT IN ('x','y')", [7, 9]),
    ("n BETWEEN 4 AND 16", [1, 2, 5]),
    ("b = true", [6, 7]),
    ("b", []),
    ("TRUE", list(ALL)),
    ("f > 1", []),
    ("TAGS = 'TagA'", [10]),
    ("s = 'it''s'", [7]),
    ("s NOT CONTAINS 'y'", [4, 7]),
    ("s ENDSWITH 'z'", [9]),
    ("-n = 3", []),
    ("a > c", [17]),
    ("N = 7", [14]),
    ("n + 1 = 6", []),
    ("n > 4)", [1, 2, 5]),
    ("TAGS IS NULL", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17]),
    ("n > 4 -- comment", [1, 2, 5]),
    ("N > 6 OR n > 6", [2, 14]),
    ("NULL", []),
    ("n > 4.0", [1, 2, 5, 12, 15]),
    ("missing CONTAINS 'x'", []),
    ("NOT (missing CONTAINS 'x')", list(ALL)),
    ("missing BETWEEN 1 AND 2", []),
    ("1 > n", [9]),
]
REFUSED = [
    "n > '4'",
    "s BETWEEN 'a' AND 'z'",
    "n = NULL",
    "n >",
    's = "x"',
    "n != 5",
    "n IN ('5','15',NULL)",
]
#: What it takes, and what is refused here: it matches nothing, or not what was meant.
TRAPS = ["b", "NULL", "n + 1 = 6", "n > 4)", "NOT n = 5", "s LIKE 'x%'"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    with open_small(tmp_path_factory.mktemp("store"), default_queue_count=1) as opened:
        opened.put(
            [
                Message(
                    "t",
                    str(number).encode(),
                    tag=properties.get(TAGS, ""),
                    properties={
                        name: value for name, value in properties.items() if value and name != TAGS
                    },
                )
                for number, properties in enumerate(MESSAGES)
            ]
        )
        yield opened


def matching(store: MessageStore, condition: str) -> list[int]:
    return store.pull("t", 0, 0, tag_filter=SqlFilter.parse(condition)).queue_offsets


@pytest.mark.parametrize(
    ("condition", "numbers"), [each for each in ANSWERS if each[0] not in TRAPS]
)
def test_it_matches_what_the_original_matched(
    store: MessageStore, condition: str, numbers: list[int]
) -> None:
    assert matching(store, condition) == numbers


@pytest.mark.parametrize("condition", [*REFUSED, *TRAPS])
def test_what_the_original_refused_or_let_match_nothing_is_refused(condition: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"sql_filter: at character \d+"):
        SqlFilter.parse(condition)
