"""Settings of a producer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypedDict

from kvcq_client.arguments import check_field, wrong_value
from kvcq_client.bounds import check_settings

if TYPE_CHECKING:
    from kvcq_client.bounds import Bounds

_LAST_FIRST_SEQUENCE = 1 << 61
_PRODUCER_ID = re.compile(r"[A-Za-z0-9._-]{1,48}")


@dataclass(frozen=True, kw_only=True)
class ProducerConfig:
    """Settings of one producer, checked when made. Raises ValueError, naming the field.

    A batch is sent when it has `batch_bytes` or `batch_messages`, or when its first message is
    `linger_ms` old. Larger batches cost less per message, and delay the server's other calls more.

    `producer_id`: the name under which the server numbers this producer's messages, to recognise a
    batch that arrives twice. By default each producer gets a new one. With a name of your own, the
    producer asks the server for the next free number before the first batch, so that each run of a
    program continues after the previous one. Only one process at a time should use a name.

    `first_sequence`: the number of the first message, for a process that repeats what another one
    sent under `producer_id` and may not have completed. A batch that the server already has under
    its number is acknowledged and **not stored again** (`Placed.repeated`); other messages under a
    used number raise NumberReusedError. Both processes must cut the same batches, by
    `batch_messages` and a long linger; `put_numbered` makes that explicit.
    """

    linger_ms: float = 5.0
    batch_bytes: int = 256 << 10
    batch_messages: int = 1000
    buffer_bytes: int = 32 << 20  # of unacknowledged messages; beyond that `send` waits
    max_block_s: float = 60.0  # how long `send` may wait for space
    window: int = 16  # batches in flight
    delivery_timeout_s: float = 120.0  # from `send` to the acknowledgement, retries included
    producer_id: str | None = None
    first_sequence: int | None = None

    def __post_init__(self) -> None:
        check = partial(check_field, self)
        check_settings(self, _BOUNDS, wrong_value)
        check("buffer_bytes", self.buffer_bytes >= self.batch_bytes, "at least batch_bytes")
        name = self.producer_id
        check(
            "producer_id",
            name is None or (isinstance(name, str) and bool(_PRODUCER_ID.fullmatch(name))),
            "1 to 48 letters, digits, '.', '_' or '-'",
        )
        number = self.first_sequence
        check(
            "first_sequence",
            number is None or (type(number) is int and 0 <= number <= _LAST_FIRST_SEQUENCE),
            f"a whole number from 0 to {_LAST_FIRST_SEQUENCE}",
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
    producer_id: str | None
    first_sequence: int | None


#: Minimum and maximum, both inclusive.
_BOUNDS: dict[str, Bounds] = {
    "linger_ms": (0, 3_600_000),
    "batch_bytes": (1, 1 << 30),
    "batch_messages": (1, 10_000),
    "buffer_bytes": (1, 1 << 40),
    "max_block_s": (0, 365 * 86_400),
    "window": (1, 1024),
    "delivery_timeout_s": (0.001, 365 * 86_400),
}
