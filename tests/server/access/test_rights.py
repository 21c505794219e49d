"""server/access/rights.py against the plain reading of its table."""

from __future__ import annotations

import time
import timeit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.access.rights import MAX_RIGHTS, ResourceKind, Right, Rights, Role, check_right
from store.errors import InvalidArgumentError
from tests.support.users import right

_NAMES = st.text("ab%*", max_size=4)
_PATTERNS = st.builds(
    lambda name, star: name.replace("*", "") + star, _NAMES, st.sampled_from("*a")
)
_RIGHTS = st.lists(
    st.builds(Right, st.sampled_from(Role), st.sampled_from(ResourceKind), _PATTERNS)
)


def allowed(rights: list[Right], kind: ResourceKind, role: Role | None, name: str) -> bool:
    for has, of, pattern in rights:
        fits = name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
        implied = has is Role.ADMIN and (role is not Role.PUBLISH or kind is ResourceKind.TOPIC)
        if of is kind and fits and (role is None or has is role or implied):
            return True
    return False


@given(
    _RIGHTS,
    st.lists(st.tuples(st.sampled_from(ResourceKind), st.sampled_from([*Role, None]), _NAMES)),
)
def test_rights_are_what_the_table_says(
    rights: list[Right], asked: list[tuple[ResourceKind, Role | None, str]]
) -> None:
    found = Rights(rights)
    for kind, role, name in [*asked, *asked]:  # again: answers are remembered
        assert found.allow(kind, role, name) == allowed(rights, kind, role, name)
    for kind in ResourceKind:
        for role in [*Role, None]:
            names = [name for _, _, name in asked]
            refused = [name for name in names if not allowed(rights, kind, role, name)]
            assert found.first_refused(kind, role, names) == (refused[0] if refused else None)


@given(_RIGHTS, _NAMES, st.sampled_from([*Role, None]))
def test_all_names_that_begin_so(rights: list[Right], prefix: str, role: Role | None) -> None:
    found = Rights(rights)
    if found.allow_all(ResourceKind.TOPIC, role, prefix):
        for end in ("", "a", "zz"):
            assert allowed(rights, ResourceKind.TOPIC, role, prefix + end)
    within = found.prefix_within(ResourceKind.TOPIC, role, prefix)
    if within is not None:
        assert within.startswith(prefix)
        assert found.allow_all(ResourceKind.TOPIC, role, within)


def test_a_thousand_prefixes_hold_the_loop_no_longer_than_one() -> None:
    """10,000 names of a call, each looked for among all of them, took 69 to 121 ms."""
    rights = Rights(right(f"publish topic prefix-{number:04}-*") for number in range(MAX_RIGHTS))
    names = [f"prefix-{number % MAX_RIGHTS:04}-{number}" for number in range(10_000)]

    def check() -> None:
        assert rights.first_refused(ResourceKind.TOPIC, Role.PUBLISH, names) is None

    # Of the thread: the machine may have other work.
    assert min(timeit.repeat(check, timer=time.thread_time, number=1, repeat=5)) < 0.02


def test_who_may_do_everything_may() -> None:
    everything = Rights(everything=True)
    assert everything.allow(ResourceKind.GROUP, Role.ADMIN, "any")
    assert everything.allow_all(ResourceKind.TOPIC, None, "")
    assert not Rights().allow(ResourceKind.TOPIC, None, "any")


def test_remembered_answers_are_bounded() -> None:
    rights = Rights([right("publish topic a*")])
    for number in range(40_000):
        assert rights.allow(ResourceKind.TOPIC, Role.PUBLISH, f"a{number}")
    assert len(rights._known) <= 16_384


@pytest.mark.parametrize("pattern", ["", "a*b", "**", "a b", "a,b", "a\n", "x" * 256])
def test_patterns_that_mean_nothing_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        check_right("rights[3]", Right(Role.SUBSCRIBE, ResourceKind.TOPIC, pattern))
    assert refused.value.field == "rights[3].pattern"


def test_nobody_publishes_to_a_group() -> None:
    with pytest.raises(InvalidArgumentError, match="not on groups"):
        check_right("rights[0]", right("publish group g"))
    assert check_right("rights[0]", right("publish topic %LMQ%a*"))


def test_long_names_are_not_kept() -> None:
    rights = Rights([right("publish topic a*")])
    assert rights.allow(ResourceKind.TOPIC, Role.PUBLISH, "a" * 256)
    assert not rights.allow(ResourceKind.TOPIC, Role.PUBLISH, "b" * (1 << 20))
    assert not rights._known
