"""Checks arguments of public calls against their annotations, before anything is sent.

protobuf would accept None and bytes as text, and its errors do not name the field.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from numbers import Real
from typing import Any, TypeVar

from kvcq_client.errors import InvalidArgumentError
from kvcq_client.values import Boundary, Queue, Retention, Start

C = TypeVar("C")

INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1
#: Largest time in seconds.
YEAR_S = 365 * 86_400
#: Largest values of arguments that requests hold with fewer than 64 bits.
_MOST = {
    **dict.fromkeys(("queue_id", "queue_count", "max_messages"), INT32_MAX),
    **dict.fromkeys(("max_deliveries", "most_in_flight"), INT32_MAX),
    **dict.fromkeys(("key_every", "limit", "skip"), INT32_MAX),
    "wait_s": INT32_MAX // 1000,
}
#: Arguments for which a request means its default by 0.
_NOT_0 = {"max_messages", "max_bytes"}


def text(field: str, value: object) -> str:
    """Return the value. Raises TypeError, and ValueError for a lone surrogate."""
    if not isinstance(value, str):
        raise wrong_kind(field, "text", value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{field}: {error}") from None
    return value


def whole(field: str, value: Any, most: int = INT64_MAX) -> int:  # noqa: ANN401 - whatever was given
    """Return the value. Raises TypeError, and ValueError unless from -`most` - 1 to `most`."""
    if value.__class__ is not int and (isinstance(value, bool) or not hasattr(value, "__index__")):
        raise wrong_kind(field, "a whole number", value)
    if not -most - 1 <= value <= most:
        raise ValueError(f"{field}: {value} is not from {-most - 1} to {most}")
    found: int = value
    return found


def number(field: str, value: Any, most: float = YEAR_S) -> float:  # noqa: ANN401 - as in `whole`
    """Return the value. Raises TypeError, and ValueError if NaN, or not from -`most` to `most`."""
    is_number = isinstance(value, float | int | Real) and not isinstance(value, bool)
    if not is_number:
        raise wrong_kind(field, "a number", value)
    if not -most <= value <= most:
        raise ValueError(f"{field}: {value} is not from {-most} to {most}")
    return float(value)


def of_kind(field: str, value: object, kind: type, *, or_none: bool = False) -> None:
    """Raise TypeError unless the value is of the kind."""
    if not (isinstance(value, kind) or (or_none and value is None)):
        raise wrong_kind(field, f"a {kind.__name__}", value)


def queue_of(field: str, value: object) -> Queue:
    """Return a Queue or an equal pair as a Queue. Raises TypeError, ValueError."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise wrong_kind(field, "a Queue", value)
    return Queue(text(field, value[0]), whole(field, value[1], INT32_MAX))


def positions_of(field: str, value: Mapping[Queue, int]) -> dict[Queue, int]:
    """Return the offset of each queue. Raises TypeError, ValueError."""
    found = {queue_of(field, queue): whole(field, offset) for queue, offset in value.items()}
    for (topic, queue_id), offset in found.items():
        if offset < 0:
            raise ValueError(f"{field}: offset {offset} of {topic}/{queue_id} is below 0")
    return found


def start_of(field: str, value: Start | str) -> Start:
    """Return a Start, or the Start of a text. Raises ValueError, TypeError."""
    if not isinstance(value, Start | str):
        raise wrong_kind(field, 'a Start such as "earliest"', value)
    try:
        return Start(value)
    except ValueError:
        known = ", ".join(repr(one.value) for one in Start)
        raise ValueError(f"{field}: {value!r} is not one of {known}") from None


#: Arguments of other libraries, and their names here.
_ADVICE = {
    "key": (
        'ordering_key="…" keeps messages with the same key in order; keys=["…"] are words to find '
        "a message by"
    ),
    "partition": "queue_id=… is the queue of the topic",
    "queue": "queue_id=… is the queue of the topic",
    "group": (
        "reader_group=… keeps offsets: every consumer of a reader group reads every message; "
        "client.receiver(topic, group=…) shares them"
    ),
    "headers": 'properties={"name": "value"} travel with the message',
    "value": "the message's content is body, in bytes",
    "timeout": "timeout_s=… is the time in seconds",
}


def check_known(names: Iterable[str]) -> None:
    """Raise TypeError for an argument that a call does not have, with advice if there is any."""
    for name in names:
        advice = _ADVICE.get(name)
        raise TypeError(f"no argument {name!r}" + (f": {advice}" if advice else ""))


def check_field(settings: object, name: str, ok: bool, rule: str) -> None:  # noqa: FBT001 - reads as a table
    """Raise ValueError that the field breaks the rule, unless `ok`."""
    if not ok:
        raise wrong_value(name, f"{getattr(settings, name)!r} is not {rule}")


def wrong_value(field: str, why: str) -> ValueError:
    """The error for a wrong value."""
    return ValueError(f"{field}: {why}")


def wrong_kind(field: str, wanted: str, value: object) -> TypeError:
    """The error for a value of a wrong type."""
    return TypeError(f"{field}: expected {wanted}, not {type(value).__name__}")


# --- by annotation -------------------------------------------------------------------------

#: Types in annotations, and their names in errors. Numbers have checks of their own.
_KINDS: dict[str, tuple[type, str]] = {
    "None": (type(None), "None"),
    "str": (str, "text"),
    "bytes": (bytes, "bytes"),
    "bool": (bool, "True or False"),
    "Mapping": (Mapping, "a mapping"),
    "Sequence": (Iterable, "a sequence"),
    "Iterable": (Iterable, "a sequence"),
    **{kind.__name__: (kind, f"a {kind.__name__}") for kind in (Boundary, Queue, Retention, Start)},
}
#: Types that `value.__class__` identifies completely.
_PLAIN = {type(None), str, bytes, bool}
#: Types whose fields are checked where they are used.
_BY_THEIR_FIELDS = {"Message"}


def checked(*, but: Collection[str] = ()) -> Callable[[type[C]], type[C]]:
    """Make the public methods of a class check their arguments, except `but`.

    The methods must be coroutines or async iterators.
    """

    def with_checks(cls: type[C]) -> type[C]:
        for name, member in list(vars(cls).items()):
            if inspect.isfunction(member) and not name.startswith("_") and name not in but:
                setattr(cls, name, _checked(member))
        return cls

    return with_checks


def _checked(call: Callable[..., Any]) -> Callable[..., Any]:
    parameters = list(inspect.signature(call).parameters.values())[1:]
    by_name = {
        one.name: _check_of(one.name, one.annotation, call.__globals__)
        for one in parameters
        if one.kind is not one.VAR_KEYWORD
    }
    checks = [by_name[one.name] for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]

    def look(args: tuple[Any, ...], given: dict[str, Any]) -> None:
        for check, value in zip(checks, args, strict=False):  # Python checks their number
            check(value)
        for name, value in given.items():
            if name in by_name:
                by_name[name](value)

    if not inspect.iscoroutinefunction(call):

        @wraps(call)
        def begin(self: object, *args: Any, **given: Any) -> Any:  # noqa: ANN401 - as `call` has them
            look(args, given)
            return call(self, *args, **given)

        return begin

    @wraps(call)
    async def wait(self: object, *args: Any, **given: Any) -> Any:  # noqa: ANN401 - as `call` has them
        look(args, given)
        try:
            return await call(self, *args, **given)
        except InvalidArgumentError as error:
            name_as_given(error, by_name)
            raise

    return wait


def name_as_given(error: InvalidArgumentError, arguments: Collection[str]) -> None:
    """Where a request holds an argument in ms, the error names the argument, not the field."""
    before, dot, field = error.field.rpartition(".")
    stem = field.removesuffix("_ms")
    if stem == field:
        return
    meant = f"{stem}_s" if f"{stem}_s" in arguments else "deliver_at"
    if meant in arguments:
        old, new = error.field, f"{before}{dot}{meant}"
        error.message = error.message.replace(f"{old}: ", f"{new}: ", 1)
        error.metadata["field"] = new


def _check_of(field: str, annotation: str, names: Mapping[str, Any]) -> Callable[[Any], None]:
    """A function that raises TypeError or ValueError unless a value fits the annotation."""
    heads = _BRACKETS.sub("", _ALIASES.get(annotation, annotation)).split(" | ")
    if _BY_THEIR_FIELDS & {*heads}:
        return lambda value: None
    kinds = [_kind(head, names) for head in heads if head not in ("int", "float")]
    plain = _PLAIN & {kind for kind, _ in kinds}
    others = tuple(kind for kind, _ in kinds)
    words = " or ".join(words for _, words in kinds if words != "None")
    most = _MOST.get(field, INT64_MAX if "int" in heads else YEAR_S)

    def check(value: Any) -> None:  # noqa: ANN401 - as in `whole`
        if value.__class__ in plain:
            if value.__class__ is str and not value.isascii():
                text(field, value)
            return
        if isinstance(value, others) and (str in plain or not isinstance(value, str | bytes)):
            return
        if "int" in heads:
            whole(field, value, most)
            if value == 0 and field in _NOT_0:
                raise ValueError(f"{field}: 0 is below 1")
        elif "float" in heads:
            number(field, value, most)
        else:
            raise wrong_kind(field, words, value)

    return check


#: Type aliases.
_ALIASES = {"Wanted": "str | Queue | Iterable | Mapping"}
_BRACKETS = re.compile(r"\[.*?\]")


def _kind(head: str, names: Mapping[str, Any]) -> tuple[type, str]:
    return _KINDS.get(head) or (names[head], f"a {head}")
