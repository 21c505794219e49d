"""Parses the text of an SQL92 filter into a condition.

    filter      any
    any         all {OR all}
    all         equality {AND equality}
    equality    comparison {(= | <>) comparison | IS [NOT] NULL}
    comparison  unary {(< | <= | > | >=) unary | [NOT] BETWEEN unary AND unary
                | [NOT] IN (text, ...) | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) text}
    unary       (+ | - | NOT) unary | value | property | ( any )

So NOT binds to the word after it, as in RocketMQ: NOT (a = 1) needs its parentheses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.format import TAGS
from store.reads.sql import conditions
from store.reads.sql.tokens import Kind, refusal, tokens_of

if TYPE_CHECKING:
    from store.reads.sql.conditions import Term
    from store.reads.sql.tokens import Token

#: Parentheses and signs inside each other.
MOST_DEPTH = 64
_MOST_INTEGER = (1 << 63) - 1
_TESTS = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}
_ORDERS = ("<", "<=", ">", ">=")


class Parser:
    """Parses one text.

    Rejects text after a complete filter, and expressions that can be neither true nor false.
    RocketMQ's broker ignores the former, and lets the latter match nothing.
    """

    def __init__(self, text: str) -> None:
        self._tokens = tokens_of(text)
        self._depth = 0
        self._next = next(self._tokens)

    def parse(self) -> Term:
        """Raises InvalidArgumentError with the position."""
        start = self._next
        term = self._truth(start, self._any())
        if self._next.kind is not Kind.END:
            raise self._unexpected("the end")
        return term

    def _any(self) -> Term:
        first, terms = self._next, [self._all()]
        while self._takes("OR"):
            terms[-1] = self._truth(first, terms[-1])
            first = self._next
            terms.append(self._truth(first, self._all()))
        return terms[0] if len(terms) == 1 else conditions.any_of(terms)

    def _all(self) -> Term:
        first, terms = self._next, [self._equality()]
        while self._takes("AND"):
            terms[-1] = self._truth(first, terms[-1])
            first = self._next
            terms.append(self._truth(first, self._equality()))
        return terms[0] if len(terms) == 1 else conditions.all_of(terms)

    def _equality(self) -> Term:
        left = self._comparison()
        while True:
            sign = self._next
            if self._takes("=", "<>"):
                right = self._comparison()
                self._check_comparable(sign, left, right)
                left = conditions.equals(left, right, TAGS)
                if sign.text == "<>":
                    left = conditions.negation(left)
            elif self._takes("IS"):
                is_not = self._takes("NOT")
                self._expect("NULL")
                left = conditions.is_null(left)
                if is_not:
                    left = conditions.negation(left)
            else:
                return left

    def _comparison(self) -> Term:
        start = self._next
        left = self._unary()
        while True:
            sign = self._next
            if self._takes(*_ORDERS):
                right_start = self._next
                right = self._unary()
                self._check_ordered(start, left)
                self._check_ordered(right_start, right)
                left = conditions.compares(sign.text, left, right)
                continue
            is_not = self._takes("NOT")
            word = self._next
            if self._takes("BETWEEN"):
                left = self._between(start, left)
            elif self._takes("IN"):
                self._check_property(start, left)
                left = conditions.is_one_of(left, self._texts())
            elif self._takes(*_TESTS):
                self._check_property(start, left)
                test, text = _TESTS[word.text], self._text()
                left = conditions.passes(left, test, text, is_not=is_not)
                continue
            elif is_not:
                raise self._unexpected("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")
            else:
                return left
            if is_not:
                left = conditions.negation(left)

    def _between(self, start: Token, term: Term) -> Term:
        self._check_ordered(start, term)
        low_start = self._next
        low = self._unary()
        self._check_ordered(low_start, low)
        self._expect("AND")
        high_start = self._next
        high = self._unary()
        self._check_ordered(high_start, high)
        return conditions.between(term, low, high)

    def _texts(self) -> list[str]:
        self._expect("(")
        texts = [self._text()]
        while self._takes(","):
            texts.append(self._text())
        self._expect(")")
        return texts

    def _unary(self) -> Term:
        token = self._next
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise refusal(token.at, f"more than {MOST_DEPTH} parentheses and signs in each other")
        try:
            if self._takes("NOT"):
                return conditions.negation(self._negated())
            if self._takes("-"):
                return conditions.minus(self._unary())
            if self._takes("+"):
                return self._unary()
            if self._takes("("):
                term = self._any()
                self._expect(")")
                return term
            return self._value()
        finally:
            self._depth -= 1

    def _negated(self) -> Term:
        start, term = self._next, self._unary()
        if not term.is_truth:
            raise refusal(
                start.at,
                f"NOT binds to {start.text}, which is neither true nor false: write NOT (a = b)",
            )
        return term

    def _value(self) -> Term:
        token = self._next
        if self._takes("TRUE", "FALSE"):
            return conditions.literal(token.text == "TRUE")
        if self._takes("NULL"):
            return conditions.literal(None)
        if token.kind is Kind.INTEGER:
            number = int(token.text.rstrip("lL"))
            if number > _MOST_INTEGER:
                raise refusal(token.at, f"{token.text} is above {_MOST_INTEGER}")
            term = conditions.literal(number)
        elif token.kind is Kind.DECIMAL:
            term = conditions.literal(float(token.text))
        elif token.kind is Kind.TEXT:
            term = conditions.literal(token.text)
        elif token.kind is Kind.NAME:
            term = conditions.property_called(token.text)
        else:
            raise self._unexpected("a property, a value or (")
        self._next = next(self._tokens)
        return term

    # --- what is refused -------------------------------------------------------------------

    def _truth(self, start: Token, term: Term) -> Term:
        if not term.is_truth:
            hint = f": write {term.name} = TRUE" if term.name is not None else ""
            raise refusal(start.at, f"{start.text} is neither true nor false{hint}")
        return term

    def _check_comparable(self, sign: Token, left: Term, right: Term) -> None:
        for one, other in ((left, right), (right, left)):
            if one.literal == (None,):
                raise refusal(sign.at, "nothing is equal to NULL: write IS NULL, or IS NOT NULL")
            is_value = other.literal is not None and not isinstance(other.literal[0], bool)
            if one.is_truth and is_value:
                raise refusal(sign.at, "a condition is compared with a text or a number")

    def _check_ordered(self, start: Token, term: Term) -> None:
        """Raises InvalidArgumentError for a term that is certainly not a number."""
        if term.is_truth:
            raise refusal(start.at, "a condition has no order")
        if term.literal is not None and not isinstance(term.literal[0], int | float):
            raise refusal(start.at, f"{start.text!r} is no number: only numbers have an order")

    def _check_property(self, start: Token, term: Term) -> None:
        if term.name is None:
            raise refusal(start.at, f"{start.text!r} is no property")

    # --- tokens ----------------------------------------------------------------------------

    def _takes(self, *texts: str) -> bool:
        """Whether the next token is one of these; if so, it is consumed."""
        if not self._next.is_any_of(*texts):
            return False
        self._next = next(self._tokens)
        return True

    def _expect(self, text: str) -> None:
        if not self._takes(text):
            raise self._unexpected(text)

    def _text(self) -> str:
        token = self._next
        if token.kind is not Kind.TEXT:
            raise self._unexpected("a text in single quotes")
        self._next = next(self._tokens)
        return token.text

    def _unexpected(self, wanted: str) -> Exception:
        found = self._next
        return refusal(found.at, f"{found.text!r} where {wanted} belongs")
