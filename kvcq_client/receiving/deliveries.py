"""What a receiver hands out: a message that belongs to it until it is settled, or for a time."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from time import monotonic
from typing import TYPE_CHECKING, Protocol, Self

from kvcq_client.arguments import YEAR_S, number
from kvcq_client.shared_groups import Outcome
from kvcq_client.values import lite_topic_of

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

    from kvcq_client.format import StoredMessage
    from kvcq_client.shared_groups import Received


class RetryLater(Exception):
    """Raised by a handler: give the message back, and deliver it again after `delay_s`.

    None: after the group's backoff, as with any other error. An error of another class may have a
    `delay_s` as well.
    """

    def __init__(self, delay_s: float | None = None, why: str = "") -> None:
        super().__init__(why or "to be retried later")
        self.delay_s = None if delay_s is None else number("delay_s", delay_s)


class Settlement(Future[Outcome]):
    """The future of one acknowledgement: `result()` blocks; `await` waits in an event loop.

    You need not wait for it. It cannot be cancelled. Its outcome is NOT_IN_FLIGHT if the work came
    too late: the message was delivered again meanwhile.
    """

    def cancel(self) -> bool:
        """Do nothing and return False: the call is in progress."""
        return False

    def __await__(self) -> Generator[object, None, Outcome]:
        return asyncio.wrap_future(self).__await__()


class Settles(Protocol):
    """Takes the settlements of a delivery; its receiver implements it. Thread-safe."""

    renew_s: float

    def acknowledge(self, delivery: Delivery, *, may_wait: bool) -> Settlement: ...

    def hurry(self) -> None: ...

    def give_back(
        self, delivery: Delivery, delay_s: float | None, *, not_begun: bool
    ) -> Settlement: ...

    def hold(self, delivery: Delivery, invisible_s: float) -> Settlement: ...


class Delivery:
    """A message that belongs to this receiver for now.

    Acknowledge it when its work is done, or give it back. Otherwise it is delivered again when its
    time is over. `with delivery:` renews it until the end of the block, then acknowledges it, or
    gives it back if the block raises. Calls return at once with a Settlement, and are sent in
    batches. The acknowledgement of a block is `with_next`. The first of `acknowledge` and
    `give_back` counts. Thread-safe.
    """

    __slots__ = ("_receiver", "_settlement", "received", "renew_until_s", "until_s")

    def __init__(self, received: Received, until_s: float, receiver: Settles) -> None:
        self.received = received
        #: When its lease ends, on the monotonic clock of this machine.
        self.until_s = until_s
        #: Until when its lease is renewed; 0.0 if it is not renewed.
        self.renew_until_s = monotonic() + receiver.renew_s
        self._receiver = receiver
        self._settlement: Settlement | None = None

    @property
    def message(self) -> StoredMessage:
        return self.received.message

    @property
    def body(self) -> bytes:
        """The body of the message."""
        return self.received.message.body

    @property
    def lite_topic(self) -> str:
        """The lite topic it was received from; "" if it was none."""
        return lite_topic_of(self.received.message.queue.topic)

    @property
    def deliveries(self) -> int:
        """How often the message has been delivered, including this time."""
        return self.received.deliveries

    @property
    def is_settled(self) -> bool:
        """Whether it was acknowledged or given back."""
        return self._settlement is not None

    @property
    def is_over(self) -> bool:
        """Whether its time is over, so that another member may have the message by now."""
        return monotonic() >= self.until_s

    def acknowledge(self, *, with_next: bool = False) -> Settlement:
        """Acknowledge it: the message is done, and is not delivered again.

        `with_next`: it may wait up to 10 ms for the receiver's next call to the server, and be sent
        with it. The settlement has a KvcqError if it did not reach the server in time.
        """
        if self._settlement is None:
            self._settlement = self._receiver.acknowledge(self, may_wait=with_next)
        elif not with_next and not self._settlement.done():
            self._receiver.hurry()
        return self._settlement

    def give_back(self, delay_s: float | None = None, *, not_begun: bool = False) -> Settlement:
        """Give it back: the message is delivered again, to any member, after `delay_s`.

        None: after the group's backoff. `not_begun`: no work on it began, so this delivery does not
        count. Raises TypeError, ValueError.
        """
        if delay_s is not None:
            number("delay_s", delay_s)
        if self._settlement is None:
            self._settlement = self._receiver.give_back(self, delay_s, not_begun=not_begun)
        return self._settlement

    def hold(self, invisible_s: float) -> Settlement:
        """Keep it for `invisible_s` from now on. Raises TypeError, ValueError."""
        return self._receiver.hold(self, number("invisible_s", invisible_s))

    def renew(self) -> None:
        """Renew it from now on until it is settled, for the receiver's `renew_s` at most."""
        self.renew_until_s = monotonic() + self._receiver.renew_s

    def __enter__(self) -> Self:
        self.renew()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.renew_until_s = 0.0
        if error is None:
            self.acknowledge(with_next=True)
        else:
            self.give_back(delay_of(error))

    def __repr__(self) -> str:
        return f"<delivery {self.deliveries} of {self.message!r}>"


def delay_of(error: BaseException) -> float | None:
    """The error's `delay_s`, if it has one that is a number of seconds."""
    delay_s = getattr(error, "delay_s", None)
    if isinstance(delay_s, bool) or not isinstance(delay_s, int | float):
        return None
    return float(delay_s) if 0 <= delay_s <= YEAR_S else None
