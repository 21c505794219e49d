"""Limits the log or audit lines that callers can cause, since each costs disk space and rejected
calls are free."""

from __future__ import annotations

import ipaddress
import re
from collections import OrderedDict
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: Callers that are remembered, the latest ones.
REMEMBERED = 1024
#: Number of lines of all callers that are written without a limit, and of lines a second after
#: that: about 200 MB a day at most, however many calls are rejected.
ALL_AT_ONCE = 1000
ALL_A_SECOND = 5

_PORT = re.compile(r"(?<=[\d\]D]):\d+$")
_NETWORK_BITS = 64


class LineLimit:
    """Limits lines of each caller, and of all together. Owned by one thread."""

    def __init__(
        self, at_once: int, now_s: Callable[[], float] = monotonic, every_s: float = 1.0
    ) -> None:
        """`at_once`: lines of one caller without a wait; after that, one `every_s` seconds."""
        self._at_once = at_once
        self._now_s = now_s
        self._every_s = every_s
        self._callers: OrderedDict[tuple[str, ...], _Bucket] = OrderedDict()  # latest one last
        self._all = _Bucket(ALL_AT_ONCE, now_s())

    def take(self, caller: tuple[str, ...]) -> int | None:
        """Acquire a line. Returns how many lines were left out since the caller's last one,
        including those of callers that had none; None if this one is left out too."""
        now_s = self._now_s()
        bucket = self._callers.pop(caller, None) or _Bucket(self._at_once, now_s)
        self._callers[caller] = bucket
        if len(self._callers) > REMEMBERED:
            _, forgotten = self._callers.popitem(last=False)
            self._all.left_out += forgotten.left_out
        bucket.refill(self._at_once, 1 / self._every_s, now_s)
        self._all.refill(ALL_AT_ONCE, ALL_A_SECOND, now_s)
        if bucket.lines < 1 or self._all.lines < 1:
            bucket.left_out += 1
            return None
        left_out = bucket.left_out + self._all.left_out
        for one in (bucket, self._all):
            one.lines -= 1
            one.left_out = 0
        return left_out


class _Bucket:
    """Lines that may be written now."""

    __slots__ = ("_at_s", "left_out", "lines")

    def __init__(self, lines: float, now_s: float) -> None:
        self.lines = lines
        self._at_s = now_s
        self.left_out = 0

    def refill(self, most: int, a_second: float, now_s: float) -> None:
        self.lines = min(most, self.lines + max(0.0, now_s - self._at_s) * a_second)
        self._at_s = now_s


def machine_of(peer: str) -> str:
    """The machine of a connection, to count callers by: a new port, or another address of the same
    IPv6 network, is not a new caller. `peer`: as gRPC names it."""
    kind, _, address = _PORT.sub("", peer).partition(":")
    try:
        found = ipaddress.IPv6Address(address.replace("%5B", "").replace("%5D", "").strip("[]"))
    except ValueError:
        return f"{kind}:{address}"
    network = ipaddress.IPv6Network((int(found), _NETWORK_BITS), strict=False)
    return f"{kind}:{network}"
