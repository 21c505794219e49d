"""A worker with transactions: it begins them, and commits or rolls back some; each has one outcome.

It owns its topic. Each of its messages is known by its key. At the beginning of a life, while
nobody else calls, the store says which are open: those that nobody decided, all of them. No
producer is there to be asked, so none is counted as asked about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import transactions_pb2
from tests.campaign.model import Failure
from tests.campaign.owner import QUEUES, TIMEOUT_S, Owner, delivered
from tests.campaign.session import Refused

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from tests.campaign.session import Session


class DecidingWorker(Owner):
    """See Owner."""

    counted_as = "transactions"

    def __init__(self, name: str, chance: random.Random) -> None:
        super().__init__(f"{name}-decided", chance)
        self.group = f"{name}-producers"
        #: By id: its text. Begun, answered, and not decided.
        self._open: dict[str, str] = {}
        #: By id: text and decision. Answered; and without an answer.
        self._decided: dict[str, tuple[str, bool]] = {}
        self._maybe: dict[str, tuple[str, bool]] = {}
        #: Where what was committed stands.
        self._places: dict[str, tuple[int, int]] = {}
        #: Committed, as long as they must be there.
        self._committed: set[str] = set()
        self._rolled_back: set[str] = set()

    def _calls(self) -> Mapping[Callable[[Session], None], int]:
        return {self._begin: 3, self._decide: 2, self._repeat: 1}

    def _begin(self, session: Session) -> None:
        for text in self._new():
            message = pb.Message(
                topic=self.topic,
                queue_id=self._chance.randrange(QUEUES),
                body=bytes(self._chance.choice((0, 2000))),
                keys=[text],
            )
            request = transactions_pb2.BeginTransactionRequest(message=message, group=self.group)
            answer = session.call(session.stubs.transactions.BeginTransaction, request, once=True)
            if answer is not None:
                self._open[answer.transaction_id] = text
                self.counts["begun"] += 1

    def _decide(self, session: Session) -> None:
        if not self._open:
            return
        one = self._chance.choice(list(self._open))
        commit = self._chance.random() < 0.6
        self._maybe[one] = self._open.pop(one), commit
        if self._ask(session, one, commit):
            self._done(one)

    def _done(self, one: str) -> None:
        self._decided[one] = text, commit = self._maybe.pop(one)
        (self._committed if commit else self._rolled_back).add(text)
        self.counts["committed" if commit else "rolled back"] += 1

    def _ask(self, session: Session, one: str, commit: bool) -> bool:
        """Whether it was answered."""
        request = transactions_pb2.DecideTransactionRequest(transaction_id=one, commit=commit)
        stub = session.stubs.transactions
        return session.call(stub.DecideTransaction, request, once=True) is not None

    def _repeat(self, session: Session) -> None:
        """The same decision again changes nothing; the other one is refused."""
        if not self._decided:
            return
        one = self._chance.choice(list(self._decided))
        text, commit = self._decided[one]
        is_same = self._chance.random() < 0.5
        try:
            answered = self._ask(session, one, commit if is_same else not commit)
        except Refused as refused:
            # It is remembered for ten minutes, by a clock that a campaign sets.
            forgotten = refused.code is grpc.StatusCode.NOT_FOUND
            if not forgotten and (is_same or refused.code is not _OTHER_DECISION):
                raise
            if forgotten:
                del self._decided[one]
            return
        if answered and not is_same:
            raise Failure(f"{text} was decided, and decided otherwise again")

    # --- judging ---------------------------------------------------------------------------

    def power_lost(self, *, is_flushed: bool) -> None:
        if not is_flushed:
            for each in (self._open, self._decided, self._maybe, self._places):
                each.clear()
            self._committed.clear()
            self._rolled_back.clear()

    def judge(self, session: Session, *, may_expire: bool) -> None:
        if not self._next:
            return
        self._make(session)
        try:
            waiting = self._waiting(session)
            found = [(each.keys[0], place) for each, place in delivered(session, self.topic)]
        except grpc.RpcError as error:
            raise Failure(f"transactions cannot be looked at: {error}") from error
        for text, place in found:
            if self._places.setdefault(text, place) != place:
                raise Failure(f"{text} was delivered twice: at {self._places[text]} and {place}")
        if lost := self._open.keys() - waiting:
            raise Failure(f"nobody decided, and lost: {[self._open[one] for one in lost][:5]}")
        if wrong := self._decided.keys() & waiting:
            raise Failure(f"decided, and open: {[self._decided[one] for one in wrong][:5]}")
        for one, (text, commit) in [*self._maybe.items()]:
            if one in waiting:
                self._open[one] = text
                del self._maybe[one]
                if text in self._places:
                    raise Failure(f"{text} is open, and was delivered")
            else:
                self._decided[one] = text, commit
                (self._committed if commit else self._rolled_back).add(text)
        self._maybe.clear()
        if wrong := self._rolled_back & self._places.keys():
            raise Failure(f"rolled back, and delivered: {sorted(wrong)[:5]}")
        if wrong := set(self._open.values()) & self._places.keys():
            raise Failure(f"open, and delivered: {sorted(wrong)[:5]}")
        lost = self._committed - self._places.keys()
        if lost and not may_expire:  # before anybody has seen it
            raise Failure(f"committed, and lost: {sorted(lost)[:5]}")
        self._committed.clear()  # they were seen
        self.counts["delivered"] += len(found)

    def _waiting(self, session: Session) -> set[str]:
        found: set[str] = set()
        token = ""
        while True:
            request = transactions_pb2.ListTransactionsRequest(
                group=self.group, page_size=1000, page_token=token
            )
            page = session.stubs.transactions.ListTransactions(request, timeout=TIMEOUT_S)
            if asked := [each for each in page.transactions if each.checks]:
                raise Failure(f"nobody was there to be asked: {asked[:5]}")
            found |= {each.transaction_id for each in page.transactions}
            token = page.next_page_token
            if not token:
                return found


_OTHER_DECISION = grpc.StatusCode.FAILED_PRECONDITION
