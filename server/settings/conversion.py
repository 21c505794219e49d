"""Converts values of settings from TOML or text, and back."""

from __future__ import annotations

import enum
import ipaddress
import json
import tomllib
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from server.texts import address
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from server.settings.names import Known

_ADDRESS = tuple[str, int]


def converted(known: Known, value: object) -> object:
    """`value`, from a TOML file or text, converted to the setting's type.

    Raises InvalidArgumentError naming the setting.
    """
    kind = known.kind
    try:
        if kind == _ADDRESS:
            return _address(str(value))
        if not isinstance(value, str) or kind is str:
            return msgspec.convert(value, kind, dec_hook=_from_plain)
        if kind in (int, float):  # 1e400 is a number, out of bounds
            return kind(value)
        text: object = value
        if typing.get_origin(kind) is tuple:
            if value.lstrip().startswith("["):  # as the file has it
                return msgspec.convert(
                    tomllib.loads(f"_ = {value}")["_"], kind, dec_hook=_from_plain
                )
            text = [part.strip() for part in value.split(",")] if value.strip() else []
        elif not _is_path(kind) and str not in typing.get_args(kind):
            text = value.lower()  # words of our own: True, SYNC
        return msgspec.convert(text, kind, strict=False, dec_hook=_from_plain)
    except _PathError as error:
        raise InvalidArgumentError(known.name, str(error)) from None
    except (ValueError, msgspec.ValidationError) as error:
        if kind == _ADDRESS:
            raise InvalidArgumentError(known.name, str(error)) from None
        raise InvalidArgumentError(known.name, f"{value!r} is not {_words(kind)}") from None


def plain_value(value: object) -> Any:  # noqa: ANN401 - what JSON has
    """A setting's value as in JSON and TOML."""
    match value:
        case enum.Enum():
            return value.value
        case Path():
            return str(value)
        case (str() as host, int() as port):
            return address(host, port)
        case tuple():
            return [plain_value(one) for one in value]
        case _:
            return value


def toml_value(value: object) -> str:
    """The value as TOML text, to the right of the equals sign; "" for no value."""
    plain = plain_value(value)
    return "" if plain is None else json.dumps(plain, ensure_ascii=False)


class _PathError(Exception):
    """Not a ValueError, which msgspec would reformat."""


def _from_plain(kind: type, value: object) -> object:
    """Converts types that msgspec does not know, which are only paths."""
    assert kind is Path, kind
    if value == "":
        raise _PathError("is empty")
    if not isinstance(value, str | Path):
        raise _PathError(f"{value!r} is not a path")
    return Path(value).expanduser()


def _is_path(kind: Any) -> bool:  # noqa: ANN401 - a type, or a generic alias
    return kind is Path or Path in typing.get_args(kind)


def _address(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    return str(ipaddress.ip_address(address.strip("[]"))), int(port)


def _words(kind: Any) -> str:  # noqa: ANN401 - a type, or a generic alias
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return "one of " + ", ".join(str(one.value) for one in kind)
    if typing.get_origin(kind) is tuple:
        return "a list of whole numbers" if int in typing.get_args(kind) else "a list of texts"
    [first, *_] = typing.get_args(kind) or (kind,)
    words = {int: "a whole number", float: "a number", str: "text", Path: "a path"}
    return words.get(first, "true or false")
