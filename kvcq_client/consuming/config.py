"""Settings of a consumer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypedDict

from kvcq_client.arguments import check_field, start_of, wrong_value
from kvcq_client.bounds import check_settings
from kvcq_client.values import Start

if TYPE_CHECKING:
    from kvcq_client.bounds import Bounds


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig:
    """Settings of one consumer, checked when made. Raises ValueError, naming the field.

    `reader_group`: a name under which the server keeps the offsets that `commit` stores. It does
    not share work: each consumer of a reader group reads every message of the queues it follows.
    `start`: where to begin in queues for which no offset is given. By default a consumer with a
    reader group begins at the group's committed offset, or at the earliest message where there is
    none; a consumer without one begins at the earliest message.
    `when_expired`: where to continue when messages expired before they were read, or when their
    topic or light queue was deleted and created again. By default OffsetOutOfRangeError or
    RecreatedError is raised. A light queue that was deleted and does not exist again is followed as
    before its first message, if this is set. By default a consumer with other queues drops it, with
    a warning in its log, and a consumer without others raises NotFoundError.
    `skip_damaged`: leave out messages that cannot be read, with a warning in the log, instead of
    raising DataLossError.
    """

    reader_group: str = ""  # "" for none
    start: Start | str | None = None  # None: COMMITTED with a reader group, EARLIEST without
    tag_filter: str = ""  # such as "created || paid"; "" for all
    sql_filter: str = ""  # instead of it, such as "price > 10 AND TAGS = 'paid'"
    buffer_bytes: int = 32 << 20  # how much the server may send ahead of the reader
    batch_messages: int = 512  # at most, of one queue
    when_expired: Start | str | None = None  # EARLIEST, LATEST, or None to raise
    skip_damaged: bool = False
    verify: bool = True  # check each record against its CRC

    def __post_init__(self) -> None:
        check = partial(check_field, self)
        check_settings(self, _BOUNDS, wrong_value)
        for name in ("reader_group", "tag_filter", "sql_filter"):
            check(name, isinstance(getattr(self, name), str), "text")
        for name in ("start", "when_expired"):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, start_of(name, given))
        check("when_expired", self.when_expired is not Start.COMMITTED, "EARLIEST or LATEST")
        if self.start is Start.COMMITTED and not self.reader_group:
            raise ValueError("start: COMMITTED needs a reader_group")

    @property
    def begins_at(self) -> Start:
        """`start`, or its default."""
        if self.start is not None:
            return Start(self.start)
        return Start.COMMITTED if self.reader_group else Start.EARLIEST


class ConsumerSettings(TypedDict, total=False):
    """The fields of ConsumerConfig, as `consumer()` takes them by name."""

    reader_group: str
    start: Start | str | None
    tag_filter: str
    sql_filter: str
    buffer_bytes: int
    batch_messages: int
    when_expired: Start | str | None
    verify: bool
    skip_damaged: bool


#: Both included.
_BOUNDS: dict[str, Bounds] = {"buffer_bytes": (1, 1 << 40), "batch_messages": (1, 10_000)}
