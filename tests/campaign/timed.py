"""A worker with delayed messages: it puts and recalls them; each has one outcome.

It owns its topic. Each of its messages is known by its key. At the beginning of a life, while
nobody else calls, the store says which wait; those that do not were delivered once, or recalled.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import grpc

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import timers_pb2
from tests.campaign.model import Failure
from tests.campaign.owner import QUEUES, TIMEOUT_S, Owner, delivered

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from tests.campaign.session import Session

_FAR_MS = 24 * 3_600_000
_DELAYS_MS = (0, 1, 100, 3000, _FAR_MS)


class TimedWorker(Owner):
    """See Owner."""

    counted_as = "delayed"

    def __init__(self, name: str, chance: random.Random) -> None:
        super().__init__(f"{name}-later", chance)
        #: Put, answered, and not recalled: by text, the handle.
        self._living: dict[str, str] = {}
        #: Of those, the ones that are due in a day.
        self._far: set[str] = set()
        #: Recalled, and answered; and without an answer.
        self._recalled: set[str] = set()
        self._maybe: set[str] = set()
        #: Where what was delivered stands.
        self._places: dict[str, tuple[int, int]] = {}

    def _calls(self) -> Mapping[Callable[[Session], None], int]:
        return {self._put: 3, self._recall: 1}

    def _put(self, session: Session) -> None:
        session.stop.wait(0.005)
        texts = self._new()
        delays = [self._chance.choice(_DELAYS_MS) for _ in texts]
        size = self._chance.choice((0, 2000))
        request = timers_pb2.PutDelayedRequest(
            messages=[
                timers_pb2.DelayedMessage(
                    message=pb.Message(
                        topic=self.topic,
                        queue_id=self._chance.randrange(QUEUES),
                        body=bytes(size),
                        keys=[text],
                    ),
                    delay_ms=delay,
                )
                for text, delay in zip(texts, delays, strict=True)
            ]
        )
        answer = session.call(session.stubs.timers.PutDelayed, request, once=True)
        if answer is not None:
            self._living.update(zip(texts, answer.handles, strict=True))
            self._far.update(
                text for text, delay in zip(texts, delays, strict=True) if delay == _FAR_MS
            )
            self.counts["put"] += len(texts)

    def _recall(self, session: Session) -> None:
        some = self._chance.sample(sorted(self._living), min(3, len(self._living)))
        if not some:
            return
        request = timers_pb2.RecallRequest(
            topic=self.topic, handles=[self._living[text] for text in some]
        )
        # Until it is answered, either may be.
        self._maybe.update(some)
        answer = session.call(session.stubs.timers.Recall, request, once=True)
        if answer is None:
            return
        for text, outcome in zip(some, answer.outcomes, strict=True):
            if outcome == timers_pb2.RECALL_OUTCOME_RECALLED:
                self._recalled.add(text)
                self._living.pop(text)
                self.counts["recalled"] += 1
            self._maybe.discard(text)

    # --- judging ---------------------------------------------------------------------------

    def power_lost(self, *, is_flushed: bool) -> None:
        if not is_flushed:
            self._living.clear()
            self._far.clear()
            self._recalled.clear()
            self._places.clear()

    def judge(self, session: Session, *, may_expire: bool) -> None:
        if not self._next:
            return
        self._make(session)
        try:
            # First: what is delivered meanwhile is found among what was.
            waiting = self._waiting(session)
            found = [(each.keys[0], place) for each, place in delivered(session, self.topic)]
        except grpc.RpcError as error:
            raise Failure(f"delayed messages cannot be looked at: {error}") from error
        for text, place in found:
            if self._places.setdefault(text, place) != place:
                raise Failure(f"{text} was delivered twice: at {self._places[text]} and {place}")
        if wrong := self._recalled & (self._places.keys() | waiting):
            raise Failure(f"recalled, and not: {sorted(wrong)[:5]}")
        lost = self._living.keys() - waiting - self._places.keys() - self._maybe
        if may_expire:  # what was delivered may be gone by now; what waits may not
            lost &= self._far
        if lost:
            raise Failure(f"lost: {sorted(lost)[:5]}; they were to be delivered")
        self._living = {text: handle for text, handle in self._living.items() if text in waiting}
        self._far &= waiting
        self._recalled.clear()
        self.counts["delivered"] += len(found)

    def _waiting(self, session: Session) -> set[str]:
        found: list[str] = []
        token = ""
        while True:
            request = timers_pb2.ListDelayedRequest(
                topic=self.topic, page_size=1000, page_token=token
            )
            page = session.stubs.timers.ListDelayed(request, timeout=TIMEOUT_S)
            found += [one.keys[0] for one in page.messages]
            token = page.next_page_token
            if not token:
                break
        if twice := [text for text, count in Counter(found).items() if count > 1]:
            raise Failure(f"waits twice: {twice[:5]}")
        return set(found)
