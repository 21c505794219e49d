"""How a setting is declared: in one line, with everything known about it.

`kvcq config`, docs/configuration.md, the import of a broker's settings and the reload of a running
server only use these declarations.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from store.bounds import Bounds

T = TypeVar("T")

_ABOUT = "kvcq.about"
_BOUNDS = "kvcq.bounds"


@dataclass(frozen=True)
class About:
    """The metadata of one setting, beside its name, type and default."""

    #: In a sentence, for the page of settings.
    meaning: str
    #: The least and the most, both included; None: as store.bounds has it for all numbers.
    bounds: Bounds | None
    #: Whether a running server takes a new value.
    live: bool
    #: The setting of a RocketMQ broker that says the same; "" for none.
    rocketmq: str


def setting(
    default: T,
    meaning: str,
    *,
    bounds: Bounds | None = None,
    live: bool = False,
    rocketmq: str = "",
) -> T:
    """The default of a field in a dataclass of settings, declared with the metadata of About."""
    return field(default=default, metadata={_ABOUT: About(meaning, bounds, live, rocketmq)})


def fixed(default: T, *, bounds: Bounds) -> T:
    """The default of a field that operators cannot set: it bounds memory, or time after a crash.

    Only a program that opens the store itself, such as a test, may choose another value.
    """
    return field(default=default, metadata={_BOUNDS: bounds})


def about(settings: Any) -> dict[str, About]:  # noqa: ANN401 - a dataclass, or an instance
    """Each field declared with `setting`, by name, in the order of the class."""
    return {
        one.name: one.metadata[_ABOUT]
        for one in dataclasses.fields(settings)
        if _ABOUT in one.metadata
    }


def bounds_of(settings: Any) -> dict[str, Bounds]:  # noqa: ANN401 - a dataclass, or an instance
    """The bounds of the settings that declare them."""
    own = {name: known.bounds for name, known in about(settings).items() if known.bounds}
    fields = dataclasses.fields(settings)
    return own | {one.name: one.metadata[_BOUNDS] for one in fields if _BOUNDS in one.metadata}


def live_names(settings: Any) -> frozenset[str]:  # noqa: ANN401 - a dataclass, or an instance
    """Fields that a running server can reload."""
    return frozenset(name for name, known in about(settings).items() if known.live)
