"""Settings of a receiver."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypedDict

from kvcq_client.arguments import check_field, number, wrong_value
from kvcq_client.bounds import check_settings

if TYPE_CHECKING:
    from kvcq_client.bounds import Bounds


@dataclass(frozen=True, kw_only=True)
class ReceiverConfig:
    """Settings of one receiver, checked when made. Raises ValueError, naming the field.

    `group`: the shared group. Its members share the messages: each is delivered to one of them, and
    again if it is not acknowledged. A group that does not exist is made.
    `invisible_s`: how long a message belongs to this receiver unless it is renewed. By default as
    long as the group says when the receiver starts. If this process ends, its messages are
    delivered to others after that time.
    `prefetch_messages`, `prefetch_bytes`: most messages, and bytes, that are received ahead. A
    receiver adapts to its reader: it receives ahead as many messages as were handed out in about
    the last second, so that a slow worker takes no work away from the others.
    `renew_s`: how long a message is renewed while it is waiting here or while its handler runs.
    """

    group: str = ""
    tag_filter: str = ""  # such as "created || paid"; others count as done for the whole group
    sql_filter: str = ""  # instead of it, such as "price > 10 AND TAGS = 'paid'"
    invisible_s: float | None = None
    prefetch_messages: int = 1000
    prefetch_bytes: int = 32 << 20
    renew_s: float = 3600.0
    skip_damaged: bool = False  # unreadable messages count as done for the whole group

    def __post_init__(self) -> None:
        check = partial(check_field, self)
        check_settings(self, _BOUNDS, wrong_value)
        for name in ("group", "tag_filter", "sql_filter"):
            check(name, isinstance(getattr(self, name), str), "text")
        check("skip_damaged", isinstance(self.skip_damaged, bool), "True or False")
        check("group", bool(self.group), "the name of a shared group")
        if self.invisible_s is not None:
            least, most = _INVISIBLE_S
            within = least <= number("invisible_s", self.invisible_s) <= most
            check("invisible_s", within, f"a number from {least} to {most} s")


class ReceiverSettings(TypedDict, total=False):
    """The fields of ReceiverConfig, as `receiver()` takes them by name."""

    group: str
    tag_filter: str
    sql_filter: str
    invisible_s: float | None
    prefetch_messages: int
    prefetch_bytes: int
    renew_s: float
    skip_damaged: bool


#: Both included.
_BOUNDS: dict[str, Bounds] = {
    "prefetch_messages": (0, 100_000),
    "prefetch_bytes": (1, 1 << 40),
    "renew_s": (0, 365 * 86_400),
}
_INVISIBLE_S = (0.1, 43_200)
