"""Settings of a consumer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from kvcq_client.arguments import start_of
from kvcq_client.bounds import check_settings
from kvcq_client.values import Start

if TYPE_CHECKING:
    from kvcq_client.bounds import Bounds


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig:
    """Settings of one consumer, checked when made. Raises ValueError, naming the field.

    `start`: where to begin in queues for which no offset is given. Without it a consumer of a
    `group` goes on behind what the group committed, from the earliest where it did not, and one
    without a group begins at the earliest. A group keeps offsets and shares no work: two consumers
    of one group both read every message. `tag_filter`: such as "created || paid".
    `when_expired`: where to go on when messages expired before they were read, or their topic, or
    light queue, was deleted and made again; None raises OffsetOutOfRangeError, or RecreatedError.
    `skip_damaged`: messages that cannot be read are left out, with a warning in the log; otherwise
    DataLossError is raised. `buffer_bytes`: what the server may send ahead of the reader.
    """

    group: str = ""  # whose offsets are read and committed; "" for none
    start: Start | str | None = None  # None: COMMITTED with a group, EARLIEST without
    tag_filter: str = ""  # such as "created || paid"; "" for all
    buffer_bytes: int = 32 << 20  # what the server may send ahead of the reader
    batch_messages: int = 512  # of one queue at a time
    # Where to go on when messages expired, or were deleted with their topic, before they were read.
    # None: raise OffsetOutOfRangeError, so that the reader learns of it.
    when_expired: Start | str | None = None
    skip_damaged: bool = False  # leave out messages that cannot be read
    verify: bool = True  # check each record against its CRC

    def __post_init__(self) -> None:
        def check(name: str, ok: bool, rule: str) -> None:  # noqa: FBT001 - reads as a table
            if not ok:
                raise ValueError(f"{name}: {getattr(self, name)!r} is not {rule}")

        check_settings(self, _BOUNDS, _wrong)
        for name in ("group", "tag_filter"):
            check(name, isinstance(getattr(self, name), str), "text")
        for name in ("start", "when_expired"):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, start_of(name, given))
        check("when_expired", self.when_expired is not Start.COMMITTED, "EARLIEST or LATEST")
        if self.start is Start.COMMITTED and not self.group:
            raise ValueError("start: COMMITTED needs a group")

    @property
    def begins_at(self) -> Start:
        """`start`, or what stands for None."""
        if self.start is not None:
            return Start(self.start)
        return Start.COMMITTED if self.group else Start.EARLIEST


class ConsumerSettings(TypedDict, total=False):
    """The fields of ConsumerConfig, as `consumer()` takes them by name."""

    group: str
    start: Start | str | None
    tag_filter: str
    buffer_bytes: int
    batch_messages: int
    when_expired: Start | str | None
    verify: bool
    skip_damaged: bool


#: Both included.
_BOUNDS: dict[str, Bounds] = {"buffer_bytes": (1, 1 << 40), "batch_messages": (1, 10_000)}


def _wrong(name: str, why: str) -> ValueError:
    return ValueError(f"{name}: {why}")
