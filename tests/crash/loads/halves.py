"""Transactions: what was committed is delivered once, what was rolled back never, others wait."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, ClassVar

import pytest

from store.errors import TransactionEndedError
from store.held import Decide
from store.message import Message
from tests.crash.loads.load import Load, Told, tell, texts_of

if TYPE_CHECKING:
    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock

_GROUP = "producers"


class Halves(Load):
    TOPIC: ClassVar[str] = "committed"

    def begin(self) -> None:
        # A topic that is made by the first half would be younger than it.
        self.store.create_topics([(self.TOPIC, 1)])
        self._next = 0
        self._open: list[str] = []

    def step(self) -> None:
        self.chance.choice((self._begin, self._end, self._check))()

    def _begin(self) -> None:
        for _ in range(self.chance.randrange(1, 8)):
            text = f"{self._next}"
            self._next += 1
            message = Message(self.TOPIC, text.ljust(600).encode())
            one = self.store.halves.begin(message, _GROUP)
            tell("begun half", [one, text])
            self._open.append(one)

    def _end(self) -> None:
        self.chance.shuffle(self._open)
        count = self.chance.randrange(4)
        some = {one: self.chance.random() < 0.5 for one in self._open[:count]}
        if not some:
            return
        del self._open[:count]
        tell("deciding", some)
        answers, end = self.store.halves.decide([Decide(*each) for each in some.items()])
        assert answers == list(some)
        self.store._appends.wait_acknowledged(end)
        tell("decided", some)

    def _check(self) -> None:
        due = self.store.halves.due(_GROUP)
        self.store.halves.checked([each.half for each in due])

    @staticmethod
    def judge(store: MessageStore, clock: FakeClock, told: list[Told]) -> None:
        texts: dict[str, str] = {}
        decided: dict[str, bool] = {}
        maybe: dict[str, bool] = {}
        before: set[str] = set()
        for what, value in told:
            if what == "begun half":
                texts[value[0]] = value[1]
            elif what == "deciding":
                maybe = value
            elif what == "decided":
                maybe = {}
                decided |= value
            elif what == f"seen of {Halves.TOPIC}":
                before |= set(value)
        waits = all_open(store)
        must = texts.keys() - decided.keys() - maybe.keys()
        assert must <= waits, "it is lost"
        assert not decided.keys() & waits, "it was decided"
        assert len(waits - texts.keys()) <= 1, "the last one may be there without an answer"
        seen = set(texts_of(store, Halves.TOPIC)) | before
        for one, commit in decided.items():
            assert (texts[one] in seen) == commit
        for one, commit in maybe.items():
            assert (texts[one] in seen) == (commit and one not in waits)
            outcome = commit != (one in waits)  # the other way, where neither was
            store.halves.end(one, commit=outcome)
            with pytest.raises(TransactionEndedError):
                store.halves.end(one, commit=not outcome)
        for one in waits - maybe.keys():
            store.halves.end(one, commit=True)
        assert all_open(store) == set()
        found = Counter(texts_of(store, Halves.TOPIC))
        assert set(found.values()) <= {1}, "it was delivered twice"
        assert {texts[one] for one in must} <= found.keys()
        assert store.statistics()["store.transactions_lost"] == 0


def all_open(store: MessageStore) -> set[str]:
    found: set[str] = set()
    after: int | None = -1
    while after is not None:
        page, after = store.halves.list(after)
        found |= {each.transaction_id for each in page}
    return found
