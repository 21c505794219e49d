"""How a setting is declared: in one line, with all that is known of it.

`kvcq config`, docs/configuration.md, the import of a broker's settings and the reload of a running
server are made from these declarations alone.
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
    """What is known of one setting, beside its name, type and default."""

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
    """The default of a field in a dataclass of settings, declared with what About says."""
    return field(default=default, metadata={_ABOUT: About(meaning, bounds, live, rocketmq)})


def fixed(default: T, *, bounds: Bounds) -> T:
    """The default of a field that no operator sets: it bounds memory, or time after a crash.

    Only a program that opens the store itself may choose another value, such as a test.
    """
    return field(default=default, metadata={_BOUNDS: bounds})


def about(settings: Any) -> dict[str, About]:  # noqa: ANN401 - a dataclass, or an instance
    """By field name, in the order of the class: each field that `setting` declares."""
    return {
        one.name: one.metadata[_ABOUT]
        for one in dataclasses.fields(settings)
        if _ABOUT in one.metadata
    }


def bounds_of(settings: Any) -> dict[str, Bounds]:  # noqa: ANN401 - a dataclass, or an instance
    """The bounds of those that have some of their own."""
    own = {name: known.bounds for name, known in about(settings).items() if known.bounds}
    fields = dataclasses.fields(settings)
    return own | {one.name: one.metadata[_BOUNDS] for one in fields if _BOUNDS in one.metadata}


def live_names(settings: Any) -> frozenset[str]:  # noqa: ANN401 - a dataclass, or an instance
    """Fields that a running server takes new values of."""
    return frozenset(name for name, known in about(settings).items() if known.live)
