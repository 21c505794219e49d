"""How values of an SQL92 filter compare. None is NULL: unknown, so neither true nor false.

Properties are texts. The other operand decides how a text is read: beside an integer only integers
count, beside a decimal also decimals. A text that cannot be read that way is NULL. RocketMQ does
the same; tests/store/reads/sql has its broker's answers.
"""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

Value = str | int | float | bool | None
Truth = bool | None

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_ORDERS: dict[str, Callable[[int | float, int | float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


class ConditionError(Exception):
    """A condition that cannot be evaluated for a message: no match."""


def equal(left: Value, right: Value) -> Truth:
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    left, right = _like(left, right), _like(right, left)
    if left is None or right is None or isinstance(left, bool) != isinstance(right, bool):
        return None
    return left == right


def ordered(sign: str, left: Value, right: Value) -> Truth:
    """`sign` is >, >=, < or <=. Raises ConditionError for two properties that are not numbers."""
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        left, right = _decimal(left), _decimal(right)
        if left is None or right is None:
            raise ConditionError
    left, right = _like(left, right), _like(right, left)
    if not _is_number(left) or not _is_number(right):
        return None
    return _ORDERS[sign](left, right)  # type: ignore[arg-type]


def negative(value: Value) -> Value:
    return -value if _is_number(value) else None  # type: ignore[operator]


def truth(value: Value) -> Truth:
    """The truth value of a value used as a condition."""
    return value if isinstance(value, bool) else None


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _like(value: Value, other: Value) -> Value:
    """A text, converted to the type that it is compared with; other values unchanged."""
    if not isinstance(value, str):
        return value
    if isinstance(other, bool):
        return {"true": True, "false": False}.get(value.lower())
    return _integer(value) if isinstance(other, int) else _decimal(value)


def _integer(text: str) -> int | None:
    if _INTEGER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if _LEAST <= number <= _MOST else None


def _decimal(text: str) -> float | None:
    text = text.strip()
    return None if _DECIMAL.fullmatch(text) is None else float(text)
