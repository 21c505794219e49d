"""Names: which are right, told one by one and many in one look."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store.errors import InvalidArgumentError
from store.format.limits import (
    check_group,
    check_light_queue,
    check_queue_count,
    check_topic,
    check_topics,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# --- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "A-b_9|%x", "t" * 127, "%RETRY%" + "g" * 248, "%DLQ%g"])
def test_good_topics(name: str) -> None:
    check_topic(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "t" * 128,
        "%RETRY%" + "g" * 249,
        "a b",
        "a/b",
        "..",
        "täg",
        "a\n",
        "CHECKPOINT_TOPIC",
        "%LMQ%a",
    ],
)
def test_bad_topics(name: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        check_topic(name, "topics[2].name")
    assert caught.value.field == "topics[2].name"
    with pytest.raises(InvalidArgumentError):
        check_topics(["good", name, "good"])


def test_good_topics_may_come_together() -> None:
    check_topics(["a"])
    check_topics(["t" * 127, "%RETRY%group", "|", "a%b"])
    with pytest.raises(InvalidArgumentError):
        check_topics(["a,b", "c"])


@pytest.mark.parametrize("name", ["%LMQ%", "a", "", "%LMQ%a/b", "%LMQ%" + "x" * 251, "%LMQ%,"])
def test_bad_light_queues(name: str) -> None:
    with pytest.raises(InvalidArgumentError):
        check_light_queue(name, "light_queues")


def test_good_light_queues() -> None:
    check_light_queue("%LMQ%a", "light_queues")
    check_light_queue("%LMQ%" + "x" * 250, "light_queues")


def test_a_dollar_stands_in_names_of_light_queues_alone() -> None:
    check_light_queue("%LMQ%$parent$lite-1", "light_queues")
    check_light_queue("%LMQ%$", "light_queues")
    for name in ("a$b", "$", "%RETRY%$g"):
        with pytest.raises(InvalidArgumentError, match="characters other than"):
            check_topic(name)
    with pytest.raises(InvalidArgumentError, match="characters other than"):
        check_group("a$b")


def test_groups() -> None:
    check_group("g" * 120)
    for name in ("", "g" * 121, "a b"):
        with pytest.raises(InvalidArgumentError, match="group"):
            check_group(name)


def test_queue_counts() -> None:
    check_queue_count(1, 8)
    check_queue_count(8, 8)
    for count in (0, -1, 9):
        with pytest.raises(InvalidArgumentError, match="queue_count"):
            check_queue_count(count, 8)


@pytest.mark.parametrize("check", [check_topic, lambda name: check_light_queue(name, "topic")])
def test_a_long_name_is_not_repeated_in_its_refusal(check: Callable[[str], None]) -> None:
    for name in ("%LMQ%" + "x" * 5000, "%" * 5000, "x" * 5000):
        with pytest.raises(InvalidArgumentError) as caught:
            check(name)
        assert len(str(caught.value)) < 200
