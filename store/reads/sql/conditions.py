"""Conditions on the properties of messages, built once for each filter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from store.reads.sql.values import ConditionError, Truth, Value, equal, negative, ordered, truth

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

Properties = Mapping[str, str]
Ask = Callable[[Properties], Value]


class Term(NamedTuple):
    """A node of a filter."""

    ask: Ask
    is_truth: bool = False  # its values are true, false or NULL
    name: str | None = None  # of the property that it is
    literal: tuple[Value] | None = None  # the value that it is whatever the message
    #: The tag that every message has for which it is true.
    tag: str | None = None


def literal(value: Value) -> Term:
    return Term(lambda _: value, isinstance(value, bool), literal=(value,))


def property_called(name: str) -> Term:
    return Term(lambda properties: properties.get(name) or None, name=name)


def minus(term: Term) -> Term:
    if term.literal is not None:
        return literal(negative(*term.literal))
    ask = term.ask
    return Term(lambda properties: negative(ask(properties)))


def negation(term: Term) -> Term:
    ask = term.ask

    def holds(properties: Properties) -> Truth:
        value = truth(ask(properties))
        return None if value is None else not value

    return Term(holds, is_truth=True)


def all_of(terms: Sequence[Term]) -> Term:
    """False if any is false; otherwise NULL if any is NULL."""
    tag = next((term.tag for term in terms if term.tag is not None), None)
    return Term(
        partial(_first, [term.ask for term in terms], decides=False), is_truth=True, tag=tag
    )


def any_of(terms: Sequence[Term]) -> Term:
    """True if any is true; otherwise NULL if any is NULL."""
    return Term(partial(_first, [term.ask for term in terms], decides=True), is_truth=True)


def _first(asks: Sequence[Ask], properties: Properties, *, decides: bool) -> Truth:
    """`decides` if any has that value; otherwise NULL if any is NULL, or the opposite."""
    result: Truth = not decides
    for ask in asks:
        value = truth(ask(properties))
        if value is decides:
            return decides
        if value is None:
            result = None
    return result


def equals(left: Term, right: Term, tags: str) -> Term:
    """`tags`: name of the property that holds the tag."""
    tag = None
    for one, other in ((left, right), (right, left)):
        if one.name == tags and other.literal is not None and isinstance(other.literal[0], str):
            tag = other.literal[0]
    one_ask, other_ask = left.ask, right.ask
    return Term(
        lambda properties: equal(one_ask(properties), other_ask(properties)), is_truth=True, tag=tag
    )


def compares(sign: str, left: Term, right: Term) -> Term:
    one, other = left.ask, right.ask
    return Term(lambda properties: ordered(sign, one(properties), other(properties)), is_truth=True)


def between(term: Term, low: Term, high: Term) -> Term:
    def holds(properties: Properties) -> Truth:
        value = term.ask(properties)
        if value is None:
            raise ConditionError
        ends = (
            ordered(">=", value, low.ask(properties)),
            ordered("<=", value, high.ask(properties)),
        )
        return None if None in ends else all(ends)

    return Term(holds, is_truth=True)


def is_null(term: Term) -> Term:
    ask = term.ask
    return Term(lambda properties: ask(properties) is None, is_truth=True)


def is_one_of(term: Term, texts: Collection[str]) -> Term:
    ask, wanted = term.ask, frozenset(texts)

    def holds(properties: Properties) -> Truth:
        value = ask(properties)
        return None if value is None else value in wanted

    return Term(holds, is_truth=True)


def passes(term: Term, test: Callable[[str, str], bool], text: str, *, is_not: bool) -> Term:
    """True if the property's text passes the test, or with `is_not` does not; false without the
    property."""
    ask = term.ask

    def holds(properties: Properties) -> bool:
        value = ask(properties)
        return isinstance(value, str) and test(value, text) is not is_not

    return Term(holds, is_truth=True)
