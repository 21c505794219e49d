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
    return Term(partial(_not, term.ask), is_truth=True)


def all_of(terms: Sequence[Term]) -> Term:
    tag = next((term.tag for term in terms if term.tag is not None), None)
    return Term(partial(_all_of, [term.ask for term in terms]), is_truth=True, tag=tag)


def any_of(terms: Sequence[Term]) -> Term:
    return Term(partial(_any_of, [term.ask for term in terms]), is_truth=True)


def equals(left: Term, right: Term, tags: str) -> Term:
    """`tags`: name of the property that holds the tag."""
    tag = None
    for one, other in ((left, right), (right, left)):
        if one.name == tags and other.literal is not None and isinstance(other.literal[0], str):
            tag = other.literal[0]
    return Term(partial(_equal, left.ask, right.ask), is_truth=True, tag=tag)


def compares(sign: str, left: Term, right: Term) -> Term:
    return Term(partial(_ordered, sign, left.ask, right.ask), is_truth=True)


def between(term: Term, low: Term, high: Term) -> Term:
    return Term(partial(_between, term.ask, low.ask, high.ask), is_truth=True)


def is_null(term: Term) -> Term:
    ask = term.ask
    return Term(lambda properties: ask(properties) is None, is_truth=True)


def is_one_of(term: Term, texts: Collection[str]) -> Term:
    return Term(partial(_is_one_of, term.ask, frozenset(texts)), is_truth=True)


def holds(term: Term, test: Callable[[str, str], bool], text: str) -> Term:
    """True if the property's text passes the test; false without the property."""
    return Term(partial(_holds, term.ask, test, text), is_truth=True)


def lacks(term: Term, test: Callable[[str, str], bool], text: str) -> Term:
    """True if the property's text does not pass the test; false without the property."""
    return Term(partial(_lacks, term.ask, test, text), is_truth=True)


def _not(ask: Ask, properties: Properties) -> Truth:
    value = truth(ask(properties))
    return None if value is None else not value


def _all_of(asks: Sequence[Ask], properties: Properties) -> Truth:
    """False if any is false; otherwise NULL if any is NULL."""
    result: Truth = True
    for ask in asks:
        value = truth(ask(properties))
        if value is False:
            return False
        if value is None:
            result = None
    return result


def _any_of(asks: Sequence[Ask], properties: Properties) -> Truth:
    """True if any is true; otherwise NULL if any is NULL."""
    result: Truth = False
    for ask in asks:
        value = truth(ask(properties))
        if value is True:
            return True
        if value is None:
            result = None
    return result


def _equal(left: Ask, right: Ask, properties: Properties) -> Truth:
    return equal(left(properties), right(properties))


def _ordered(sign: str, left: Ask, right: Ask, properties: Properties) -> Truth:
    return ordered(sign, left(properties), right(properties))


def _between(term: Ask, low: Ask, high: Ask, properties: Properties) -> Truth:
    value = term(properties)
    if value is None:
        raise ConditionError
    ends = (ordered(">=", value, low(properties)), ordered("<=", value, high(properties)))
    return None if None in ends else all(ends)


def _is_one_of(ask: Ask, texts: frozenset[str], properties: Properties) -> Truth:
    value = ask(properties)
    return None if value is None else value in texts


def _holds(ask: Ask, test: Callable[[str, str], bool], text: str, properties: Properties) -> bool:
    value = ask(properties)
    return isinstance(value, str) and test(value, text)


def _lacks(ask: Ask, test: Callable[[str, str], bool], text: str, properties: Properties) -> bool:
    value = ask(properties)
    return isinstance(value, str) and not test(value, text)
