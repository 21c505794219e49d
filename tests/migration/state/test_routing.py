from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migration.state.routes import Routes, SideName, may_gain, split
from migration.state.routing import MAX_RULES, Route, RoutingPolicy, Rule, parse_rules
from migration.state.state import Phase
from store.consume_queue import DispatchRequest
from store.errors import InvalidArgumentError

NAMES = st.text("ab%", min_size=1, max_size=4)
ROUTE = st.sampled_from(list(Route))
PHASES = st.sampled_from([Phase.DOUBLE_WRITE, Phase.VERIFIED, Phase.ROCKSDB, Phase.FINISHED])


@st.composite
def policies(draw: st.DrawFn) -> RoutingPolicy:
    """Policies that hold: rules that never count are left out."""
    rules: list[Rule] = []
    for _ in range(draw(st.integers(0, 4))):
        rule = Rule(draw(NAMES) + draw(st.sampled_from(["", "*"])), draw(ROUTE))
        try:
            RoutingPolicy((*rules, rule))
        except InvalidArgumentError:
            continue
        rules.append(rule)
    return RoutingPolicy(tuple(rules), draw(ROUTE))


def request(topic: str, light: tuple[str, ...] = (), **changes: object) -> DispatchRequest:
    made = DispatchRequest(
        topic, 1, 5, 1000, 100, 7, 99, ("k",), tuple((name, 3) for name in light), in_queue=True
    )
    return made._replace(**changes)  # type: ignore[arg-type] # fields of the tuple


def test_the_first_rule_that_matches_decides() -> None:
    policy = RoutingPolicy((Rule("orders", Route.FILES), Rule("ord*", Route.ROCKSDB)), Route.BOTH)
    assert policy.route("orders") is Route.FILES
    assert policy.route("order") is Route.ROCKSDB
    assert policy.route("other") is Route.BOTH


@pytest.mark.parametrize(
    "rules",
    [
        (Rule("", Route.FILES),),
        (Rule("a*b", Route.FILES),),
        (Rule("x" * 257, Route.FILES),),
        (Rule("a*", Route.FILES), Rule("ab", Route.BOTH)),
        (Rule("a*", Route.FILES), Rule("ab*", Route.BOTH)),
        (Rule("a", Route.FILES), Rule("a", Route.BOTH)),
        tuple(Rule(f"t{number}", Route.FILES) for number in range(MAX_RULES + 1)),
    ],
)
def test_rules_that_cannot_be_meant_are_refused(rules: tuple[Rule, ...]) -> None:
    with pytest.raises(InvalidArgumentError):
        RoutingPolicy(rules)


def test_rules_are_read_as_people_write_them() -> None:
    assert parse_rules(["%LMQ%*=rocksdb", " a = both "]) == (
        Rule("%LMQ%*", Route.ROCKSDB),
        Rule("a", Route.BOTH),
    )
    for wrong in ("orders", "orders=disk"):
        with pytest.raises(InvalidArgumentError):
            parse_rules([wrong])


@given(policies())
def test_a_policy_comes_back_from_its_document(policy: RoutingPolicy) -> None:
    assert RoutingPolicy.from_document(policy.to_document()) == policy


@pytest.mark.parametrize(
    "document", [None, {}, {"rules": 1}, {"rules": [{}], "default": "both"}, {"rules": []}]
)
def test_a_damaged_policy_is_refused(document: object) -> None:
    with pytest.raises(InvalidArgumentError):
        RoutingPolicy.from_document(document)


@given(policies(), PHASES, NAMES)
def test_every_name_is_served_by_a_side_that_takes_it(
    policy: RoutingPolicy, phase: Phase, name: str
) -> None:
    routes = Routes(phase, policy)
    serving = routes.serving(name)
    assert routes.takes(serving, name)
    assert routes.required(serving)


@given(policies(), policies(), PHASES, PHASES, st.sampled_from(SideName), NAMES)
def test_what_a_side_may_gain_covers_every_name_it_gains(
    old: RoutingPolicy,
    new: RoutingPolicy,
    before: Phase,
    after: Phase,
    side: SideName,
    name: str,
) -> None:
    one, other = Routes(before, old), Routes(after, new)
    if other.takes(side, name) and not one.takes(side, name):
        assert may_gain(one, other, side)


def test_a_light_queue_goes_its_own_way() -> None:
    carried = request("orders", ("%LMQ%a", "%LMQ%b"))
    only_light = split([carried], lambda name: name == "%LMQ%b")
    assert only_light == [request("%LMQ%b", queue_id=0, queue_offset=3, keys=(), light_queues=())]
    without = split([carried], lambda name: name == "orders")
    assert without == [request("orders")]
    assert split([carried], lambda name: "b" not in name) == [request("orders", ("%LMQ%a",))]


def test_the_index_of_the_files_has_the_keys_of_all_topics() -> None:
    routes = Routes(Phase.FINISHED, RoutingPolicy((Rule("kept", Route.FILES),), Route.ROCKSDB))
    found = routes.split([request("gone"), request("kept")], SideName.FILES)
    assert found == [request("gone", in_queue=False), request("kept")]
    assert routes.split([request("gone"), request("kept")], SideName.ROCKSDB) == [request("gone")]


def test_what_stands_in_no_queue_carries_no_light_queue() -> None:
    half = request("orders", ("%LMQ%a",), in_queue=False)
    assert split([half], lambda name: name == "%LMQ%a") == []
