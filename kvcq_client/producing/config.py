"""Settings of a producer."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

from kvcq_client.bounds import check_settings

if TYPE_CHECKING:
    from kvcq_client.bounds import Bounds

_PRODUCER_ID = re.compile(r"[A-Za-z0-9._-]{1,48}")


def _new_id() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True, kw_only=True)
class ProducerConfig:
    """Settings of one producer, checked when made. Raises ValueError, naming the field.

    Batches: one goes out when it has `batch_bytes` or `batch_messages`, or when its first message
    has waited `linger_ms`. Larger ones cost less a message, and hold up the server's other calls
    for longer.
    """

    linger_ms: float = 5.0
    batch_bytes: int = 256 << 10
    batch_messages: int = 1000
    buffer_bytes: int = 32 << 20  # encoded messages that are not acknowledged; then `send` waits
    max_block_s: float = 60.0  # how long `send` may wait for room
    window: int = 16  # batches under way at once
    delivery_timeout_s: float = 120.0  # from `send` to the acknowledgement, retries included
    # Who sends. A batch that comes again under the same id and number is not stored again, so a
    # process that goes on with the id and number of one that died repeats nothing, if it cuts the
    # same batches: by `batch_messages` with a long linger. `put_numbered` leaves no doubt.
    producer_id: str = field(default_factory=_new_id)
    first_sequence: int = 0

    def __post_init__(self) -> None:
        def check(name: str, ok: bool, rule: str) -> None:  # noqa: FBT001 - reads as a table
            if not ok:
                raise ValueError(f"{name}: {getattr(self, name)!r} is not {rule}")

        check_settings(self, _BOUNDS, _wrong)
        check("buffer_bytes", self.buffer_bytes >= self.batch_bytes, "at least batch_bytes")
        check(
            "producer_id",
            isinstance(self.producer_id, str) and bool(_PRODUCER_ID.fullmatch(self.producer_id)),
            "1 to 48 letters, digits, '.', '_' or '-'",
        )


class ProducerSettings(TypedDict, total=False):
    """The fields of ProducerConfig, as `producer()` takes them by name."""

    linger_ms: float
    batch_bytes: int
    batch_messages: int
    buffer_bytes: int
    max_block_s: float
    window: int
    delivery_timeout_s: float
    producer_id: str
    first_sequence: int


#: Both included.
_BOUNDS: dict[str, Bounds] = {
    "linger_ms": (0, 3_600_000),
    "batch_bytes": (1, 1 << 30),
    "batch_messages": (1, 10_000),
    "buffer_bytes": (1, 1 << 40),
    "max_block_s": (0, 365 * 86_400),
    "window": (1, 1024),
    "delivery_timeout_s": (0.001, 365 * 86_400),
    "first_sequence": (0, 1 << 61),
}


def _wrong(name: str, why: str) -> ValueError:
    return ValueError(f"{name}: {why}")
