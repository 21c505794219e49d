"""What workers have in common that own their topics: one of each kind runs beside the others."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import grpc

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from tests.campaign.session import Gone

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Mapping

    from tests.campaign.session import Session

TIMEOUT_S = 30.0
QUEUES = 2


class Owner:
    """`run` is one life of the server; it may be called again."""

    #: In the tally, where its counts go.
    counted_as = ""

    def __init__(self, topic: str, chance: random.Random) -> None:
        self.topic = topic
        self.counts: Counter[str] = Counter()
        self.failure: BaseException | None = None
        self._chance = chance
        self._next = 0

    def run(self, session: Session) -> None:
        """Until it stops or the server is gone. A Failure is kept in `failure`."""
        calls = self._calls()
        try:
            self._make(session)
            while not session.stop.is_set():
                self._chance.choices(list(calls), list(calls.values()))[0](session)
        except Gone:
            pass
        except Exception as error:  # noqa: BLE001 - the driver raises it again
            self.failure = error

    def _calls(self) -> Mapping[Callable[[Session], None], int]:
        """What it does, and how often beside the others."""
        raise NotImplementedError

    def _make(self, session: Session) -> None:
        """What it owns, where it is not there yet, or not any more."""
        created = pb.CreateTopicRequest(name=self.topic, queue_count=QUEUES)
        session.call(session.stubs.topics.CreateTopics, pb.CreateTopicsRequest(topics=[created]))

    def _new(self, counts: tuple[int, ...] = (1, 5)) -> list[str]:
        """Texts of messages to put: each names one."""
        some = [f"{self.topic}/{self._next + at}" for at in range(self._chance.choice(counts))]
        self._next += len(some)
        return some

    def power_lost(self, *, is_flushed: bool) -> None:
        """No call is under way. Not flushed: nothing that was answered is certain."""
        raise NotImplementedError

    def judge(self, session: Session, *, may_expire: bool) -> None:
        """At the beginning of a life, alone. `may_expire`: the log keeps messages for seconds.

        Raises Failure at the first thing that must hold and does not.
        """
        raise NotImplementedError


def delivered(session: Session, topic: str) -> Iterator[tuple[pb.StoredMessage, tuple[int, int]]]:
    """All messages of the topic, with queue and offset, but those that expire meanwhile.

    Raises grpc.RpcError.
    """
    for queue_id in range(QUEUES):
        at, end = _bounds(session, topic, queue_id)
        while at < end:
            request = pb.PullRequest(
                topic=topic,
                queue_id=queue_id,
                offset=at,
                max_messages=1000,
                form=pb.RECORD_FORM_DECODED,
            )
            try:
                pulled = session.stubs.messages.Pull(request, timeout=TIMEOUT_S)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.OUT_OF_RANGE:
                    raise
                first, _ = _bounds(session, topic, queue_id)
                if first <= at:
                    raise
                at = first
                continue
            for each in pulled.messages:
                yield each, (queue_id, each.queue_offset)
            at = pulled.next_offset


def _bounds(session: Session, topic: str, queue_id: int) -> tuple[int, int]:
    bounds = session.stubs.messages.GetOffsets(
        pb.GetOffsetsRequest(queues=[pb.Queue(topic=topic, queue_id=queue_id)]), timeout=TIMEOUT_S
    )
    return bounds.queues[0].min_offset, bounds.queues[0].max_offset
