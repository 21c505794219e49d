"""A worker with a shared group: it puts, receives, acknowledges, gives back, holds on and redrives.

It owns its topic and its group. Each of its messages is known by its body; a redriven one has the
same. What must hold is judged twice: by the history of its calls (tests/support/shared_history.py),
and at the beginning of a life by what the store says then, while nobody else calls: dead letters,
and now and then all that is left, received until nothing more comes.
"""

from __future__ import annotations

from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, Any

import grpc

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import shared_groups_pb2 as shared
from tests.campaign.model import Failure
from tests.campaign.owner import TIMEOUT_S, Owner
from tests.campaign.session import Gone, Refused
from tests.support.shared_history import Answer, Dead, Given, History, Lost, Place, What, judge

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

    from tests.campaign.session import Session, Stubs

_MOST_DELIVERIES = 3
#: Leases are short: at the end of a store they are waited for.
_LEASES_MS = (1, 20, 200)
_DELAYS_MS = (0, 0, 50)


class SharedWorker(Owner):
    """See Owner."""

    counted_as = "shared"

    def __init__(self, name: str, chance: random.Random) -> None:
        super().__init__(f"{name}-work", chance)
        self.group = f"{name}-shared"
        self.history = History()
        #: Texts that must be somewhere: to be delivered, or a dead letter.
        self._living: set[str] = set()
        #: Acknowledged or deleted, and answered; and without an answer.
        self._done: set[str] = set()
        self._maybe: set[str] = set()
        #: Seen as dead letters, and not redriven since.
        self._dead: set[str] = set()
        self._held: list[tuple[str, str]] = []  # handle and text

    # --- calls -----------------------------------------------------------------------------

    def _calls(self) -> Mapping[Callable[[Session], None], int]:
        return {
            self._put: 20,
            self._receive: 40,
            self._answer: 40,
            self._redrive: 2,
            self._delete: 1,
        }

    def _make(self, session: Session) -> None:
        super()._make(session)
        request = shared.CreateGroupRequest(group=self.group, settings=self._settings())
        session.call(session.stubs.shared.CreateGroup, request)

    def _settings(self) -> shared.SharedGroupSettings:
        return shared.SharedGroupSettings(max_deliveries=_MOST_DELIVERIES)

    def _message(self, body: bytes) -> pb.Message:
        return pb.Message(topic=self.topic, queue_id=self._chance.randrange(2), body=body)

    def _put(self, session: Session) -> None:
        texts = self._new()
        size = self._chance.choice((0, 2000))
        request = pb.PutBatchRequest(
            messages=[self._message(f"{text} ".encode().ljust(size)) for text in texts]
        )
        if session.call(session.stubs.messages.PutBatch, request, once=True) is not None:
            self._living.update(texts)
            self.counts["put"] += len(texts)

    #: Of receives, those that acknowledge what it has.
    _acknowledging = 0.4

    def _receive(self, session: Session) -> None:
        most, lease_ms = self._chance.randrange(1, 12), self._chance.choice(_LEASES_MS)
        request = self._receive_request(most, lease_ms)
        done: list[tuple[str, str]] = []
        if self._chance.random() < self._acknowledging:
            done = [each for each in self._held if self._chance.random() < 0.5]
        request.acknowledge.extend(handle for handle, _ in done)
        began = self.history.now()
        method = session.stubs.shared.Receive
        answer = self._ask(session, What.ACKNOWLEDGE, done, method, request)
        if answer is not None:
            self._held += self._taken(answer, began, lease_ms)
            del self._held[:-40]

    def _receive_request(self, most: int, lease_ms: int, wait_ms: int = 0) -> shared.ReceiveRequest:
        return shared.ReceiveRequest(
            group=self.group,
            topic=self.topic,
            max_messages=most,
            invisible_ms=lease_ms,
            wait_ms=wait_ms,
            form=pb.RECORD_FORM_DECODED,
        )

    def _taken(
        self, answer: shared.ReceiveResponse, began: int, lease_ms: int
    ) -> list[tuple[str, str]]:
        ended = self.history.now()
        found = []
        for at, message in enumerate(answer.messages):
            place = Place(
                self._queue_of(answer, at), answer.queue_ids[at], answer.queue_offsets[at]
            )
            until_ms = answer.until_ms[at]
            self.history.given.append(
                Given(
                    *(began, ended, place, answer.handles[at], answer.deliveries[at]),
                    *(until_ms - lease_ms, until_ms),
                )
            )
            if answer.deliveries[at] > _MOST_DELIVERIES:
                raise Failure(f"{place} was delivered {answer.deliveries[at]} times")
            text = message.body.decode().split(" ")[0]
            if text in self._done:
                raise Failure(f"{text} at {place} was done, and is delivered")
            found.append((answer.handles[at], text))
        self.counts["received"] += len(found)
        return found

    def _queue_of(self, answer: shared.ReceiveResponse, at: int) -> str:
        """The topic, or light queue, of that message."""
        del answer, at
        return self.topic

    def _answer(self, session: Session) -> None:
        """Of messages that it has, or had."""
        some = [each for each in self._held if self._chance.random() < 0.5]
        if not some:
            return
        stub, what = session.stubs.shared, self._chance.choice((*What, What.ACKNOWLEDGE))
        handles = [handle for handle, _ in some]
        lease_ms = self._chance.choice(_LEASES_MS)
        method: Callable[..., Any]
        request: object
        if what is What.ACKNOWLEDGE:
            method = stub.Acknowledge
            request = shared.AcknowledgeRequest(group=self.group, handles=handles)
        elif what is What.GIVE_BACK:
            method = stub.GiveBack
            delay_ms = self._chance.choice(_DELAYS_MS)
            request = shared.GiveBackRequest(group=self.group, handles=handles, delay_ms=delay_ms)
        else:
            method = stub.ChangeInvisibleTime
            request = shared.ChangeInvisibleTimeRequest(
                group=self.group, handles=handles, invisible_ms=lease_ms
            )
        self._ask(session, what, some, method, request)

    def _ask(
        self,
        session: Session,
        what: What,
        some: Sequence[tuple[str, str]],
        method: Callable[..., Any],
        request: object,
    ) -> Any:  # noqa: ANN401 - the response, or None
        began, answer = self.history.now(), None
        try:
            answer = session.call(method, request, once=True)
        finally:
            ended = self.history.now()
            until_ms = answer.until_ms if what is What.HOLD and answer is not None else 0
            for at, (handle, text) in enumerate(some):
                outcome = None if answer is None else answer.outcomes[at]
                is_done = None if outcome is None else outcome == shared.HANDLE_OUTCOME_DONE
                self.history.answers.append(Answer(began, ended, what, handle, is_done, until_ms))
                if what is What.ACKNOWLEDGE and is_done is None:
                    self._maybe.add(text)
                elif what is What.ACKNOWLEDGE and is_done:
                    self._end(text)
                    self.counts["acknowledged"] += 1
        return answer

    def _end(self, text: str) -> None:
        self._living.discard(text)
        self._dead.discard(text)
        self._done.add(text)

    def _redrive(self, session: Session) -> None:
        self._dead.clear()  # whatever is answered: those that are left are seen again
        request = shared.RedriveRequest(group=self.group, max_messages=self._chance.choice((1, 50)))
        answer = session.call(session.stubs.shared.Redrive, request, once=True)
        if answer is not None:
            self.counts["redriven"] += answer.redriven
            if answer.left:
                raise Failure(f"{answer.left} dead letters of {self.topic} were left")

    def _delete(self, session: Session) -> None:
        letters = self._letters(session.stubs)
        if not letters:
            return
        text, offset = self._chance.choice(letters)
        self._dead.discard(text)
        self._maybe.add(text)
        request = shared.DeleteDeadLettersRequest(group=self.group, offsets=[offset])
        answer = session.call(session.stubs.shared.DeleteDeadLetters, request, once=True)
        if answer is not None and answer.deleted == 1:
            self._end(text)

    def _letters(self, stubs: Stubs) -> list[tuple[str, int]]:
        """Texts and offsets of all dead letters. Raises Gone."""
        found: list[tuple[str, int]] = []
        token = ""
        began = self.history.now()
        while True:
            request = shared.ListDeadLettersRequest(
                group=self.group, page_size=1000, page_token=token
            )
            try:
                page = stubs.shared.ListDeadLetters(request, timeout=TIMEOUT_S)
                for letter in page.letters:
                    pulled = stubs.messages.Pull(
                        pb.PullRequest(
                            topic=f"%DLQ%{self.group}",
                            offset=letter.place,
                            max_messages=1,
                            form=pb.RECORD_FORM_DECODED,
                        ),
                        timeout=TIMEOUT_S,
                    )
                    text = pulled.messages[0].body.decode().split(" ")[0]
                    place = Place(letter.topic, letter.queue_id, letter.queue_offset)
                    self.history.dead.append(Dead(began, place))
                    found.append((text, letter.offset))
            except (grpc.RpcError, IndexError) as error:
                # One that was moved between the two calls is at another place now.
                raise Gone from error
            token = page.next_page_token
            if not token:
                return found

    # --- judging ---------------------------------------------------------------------------

    def power_lost(self, *, is_flushed: bool) -> None:
        self.history.losses.append(Lost(self.history.now(), is_flushed))
        if not is_flushed:
            # Puts may be gone, acknowledgements too: nothing that was answered is certain.
            self._living.clear()
            self._done.clear()
            self._dead.clear()

    def judge(self, session: Session, *, may_expire: bool) -> None:
        if not self._next:
            return
        self._make(session)
        letters = self._look_at_letters(session.stubs)
        if self._chance.random() < 0.3:
            seen = self._drain(session)
            after = self._look_at_letters(session.stubs)
            if twice := seen & after:
                raise Failure(f"delivered and dead: {sorted(twice)[:5]}")
            lost = self._living - after - self._maybe
            if lost and not may_expire:
                raise Failure(f"lost: {sorted(lost)[:5]}; they were put, and are nowhere")
            self._living &= after
            self.counts["drained"] += 1
        self.counts["dead"] += len(letters)
        if faults := judge(self.history, is_complete=False):
            raise Failure(f"history of {self.group}: {faults[:5]}")

    def _look_at_letters(self, stubs: Stubs) -> set[str]:
        found = Counter(text for text, _ in self._letters_at_last(stubs))
        if twice := [text for text, count in found.items() if count > 1]:
            raise Failure(f"two dead letters: {twice[:5]}")
        if wrong := found.keys() & self._done:
            raise Failure(f"done, and dead letters: {sorted(wrong)[:5]}")
        if lost := self._dead - found.keys() - self._maybe:
            raise Failure(f"dead letters were lost: {sorted(lost)[:5]}")
        self._dead = set(found)
        return set(found)

    def _letters_at_last(self, stubs: Stubs) -> list[tuple[str, int]]:
        """When none was moved while they were read."""
        tries = 0
        while True:
            try:
                return self._letters(stubs)
            except Gone as gone:
                tries += 1
                if tries == 100:
                    raise Failure(f"dead letters of {self.group}: {gone.__cause__}") from gone

    def _drain(self, session: Session) -> set[str]:
        """All that is delivered until nothing more comes, each acknowledged."""
        seen: Counter[str] = Counter()
        until_s, quiet = monotonic() + TIMEOUT_S, 0
        # What is given back waits 50 ms, leases last 200 ms.
        while quiet < 3:
            if monotonic() > until_s:
                raise Failure(f"{self.group} gives without an end: {seen.most_common(3)}")
            began = self.history.now()
            request = self._receive_request(200, 60_000, wait_ms=150)
            try:
                answer = session.call(session.stubs.shared.Receive, request)
            except Refused as refused:
                raise Failure(f"receive: {refused}") from refused
            found = self._taken(answer, began, 60_000)
            quiet = 0 if found else quiet + 1
            if found:
                seen.update(text for _, text in found)
                acknowledge = shared.AcknowledgeRequest(
                    group=self.group, handles=[handle for handle, _ in found]
                )
                self._ask(
                    session,
                    What.ACKNOWLEDGE,
                    found,
                    session.stubs.shared.Acknowledge,
                    acknowledge,
                )
        if twice := [text for text, count in seen.items() if count > 1]:
            raise Failure(f"delivered twice, each acknowledged: {twice[:5]}")
        return set(seen)
