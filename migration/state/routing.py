"""Routing: which topics and light queues are in files, in RocksDB, or in both.

Rules are tried in order: the first that matches decides, otherwise the default. A pattern is a
whole name, or a prefix that ends with `*`. Light queues are matched by their own name, wherever
their carrying message goes.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_RULES = 1000
_MAX_PATTERN_BYTES = 256


class Route(enum.Enum):
    """Where the units of a name are."""

    FILES = "files"
    ROCKSDB = "rocksdb"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of a policy."""

    pattern: str
    route: Route

    def matches(self, name: str) -> bool:
        if self.pattern.endswith("*"):
            return name.startswith(self.pattern[:-1])
        return name == self.pattern


@dataclass(frozen=True, slots=True)
class RoutingPolicy:
    """Ordered rules and a default. Raises InvalidArgumentError for rules that cannot be meant."""

    rules: tuple[Rule, ...] = ()
    default: Route = Route.BOTH

    def __post_init__(self) -> None:
        if len(self.rules) > MAX_RULES:
            raise InvalidArgumentError("routing", f"{len(self.rules)} rules, more than {MAX_RULES}")
        for index, rule in enumerate(self.rules):
            _check(rule, self.rules[:index], f"routing.rules[{index}]")

    def route(self, name: str) -> Route:
        for rule in self.rules:
            if rule.matches(name):
                return rule.route
        return self.default

    def uses(self, route: Route) -> bool:
        """Whether any name at all may take the route."""
        return self.default is route or any(rule.route is route for rule in self.rules)

    def to_document(self) -> dict[str, object]:
        return {
            "rules": [{"pattern": rule.pattern, "route": rule.route.value} for rule in self.rules],
            "default": self.default.value,
        }

    @classmethod
    def from_document(cls, document: object) -> RoutingPolicy:
        """Inverse of `to_document`. Raises InvalidArgumentError."""
        if not isinstance(document, dict) or not isinstance(document.get("rules"), list):
            raise InvalidArgumentError("routing", "has no list of rules")
        rules = []
        for index, each in enumerate(document["rules"]):
            where = f"routing.rules[{index}]"
            if not isinstance(each, dict) or not isinstance(each.get("pattern"), str):
                raise InvalidArgumentError(where, "has no pattern")
            rules.append(Rule(each["pattern"], parse_route(each.get("route"), where)))
        return cls(tuple(rules), parse_route(document.get("default"), "routing.default"))


def parse_route(value: object, where: str) -> Route:
    """Raises InvalidArgumentError, naming `where`."""
    try:
        return Route(value)
    except ValueError:
        known = ", ".join(route.value for route in Route)
        raise InvalidArgumentError(where, f"{value!r} is none of {known}") from None


def parse_rules(texts: Iterable[str]) -> tuple[Rule, ...]:
    """Rules as a person writes them: `orders=files`, `%LMQ%*=rocksdb`."""
    rules = []
    for index, text in enumerate(texts):
        pattern, separator, route = text.rpartition("=")
        where = f"routing.rules[{index}]"
        if not separator:
            raise InvalidArgumentError(where, f"{text!r} is not PATTERN=ROUTE")
        rules.append(Rule(pattern.strip(), parse_route(route.strip(), where)))
    return tuple(rules)


def _check(rule: Rule, before: tuple[Rule, ...], where: str) -> None:
    pattern = rule.pattern
    if not pattern or len(pattern.encode()) > _MAX_PATTERN_BYTES:
        raise InvalidArgumentError(where, f"a pattern has 1 to {_MAX_PATTERN_BYTES} bytes")
    if "*" in pattern[:-1]:
        raise InvalidArgumentError(where, f"{pattern!r}: a * may only stand at the end")
    for earlier in before:
        # What a prefix has decided, a later rule below it cannot change: it was meant otherwise.
        if earlier.matches(pattern.removesuffix("*")) and (
            earlier.pattern.endswith("*") or earlier.pattern == pattern
        ):
            raise InvalidArgumentError(
                where, f"{pattern!r} never counts: {earlier.pattern!r} stands before it"
            )
