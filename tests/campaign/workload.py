"""The calls of one worker: numbered batches, single puts, resends, deletions, commits.

Only a single put without an answer stays in doubt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from tests.campaign.limits import choose
from tests.campaign.model import Batch, Failure, Model, Place, Sent
from tests.campaign.session import Gone, Refused

if TYPE_CHECKING:
    import random
    from collections.abc import Container, Sequence

    from tests.campaign.limits import Limits
    from tests.campaign.session import Session


class Worker:
    """Makes calls for one model. `run` is one life of the server; it may be called again."""

    def __init__(
        self, model: Model, chance: random.Random, max_body_bytes: int, left_out: Container[str]
    ) -> None:
        """`left_out`: names of calls that are not made, to see whether a failure needs them."""
        self.model = model
        #: Topics that get limits.
        self.limited: Sequence[str] = ()
        #: No topic may keep messages longer.
        self.longest_ms = 0
        calls = {
            "batch": (self._new_batch, 50),
            "single": (self._single_put, 15),
            "resend": (self._resend, 12),
            "deleted": (self._resend_deleted, 6),
            "altered": (self._altered, 6),
            "commit": (self._commit, 12),
            "delete": (self._delete, 3),
            "limit": (self._limit, 4),
        }
        made = [call for name, call in calls.items() if name not in left_out]
        self._calls = [method for method, _ in made]
        self._weights = [weight for _, weight in made]
        self._chance = chance
        self._max_body_bytes = max_body_bytes
        self.acknowledged = 0
        self.resent = 0
        self.refused = 0
        self.deleted = 0
        self.limits_set = 0
        self.failure: BaseException | None = None

    def run(self, session: Session) -> None:
        """Until it stops or the server is gone. A Failure is kept in `failure`."""
        try:
            self._settle(session)
            while not session.stop.is_set():
                self._chance.choices(self._calls, self._weights)[0](session)
        except Gone:
            pass
        except Exception as error:  # noqa: BLE001 - the driver raises it again
            self.failure = error

    def _settle(self, session: Session) -> None:
        if self.model.pending is not None:
            self._send(session, self.model.pending)
        if self.model.pending_deletion:
            self._finish_deletion(session)
        if self.model.pending_limits is not None:
            self._finish_limit(session, *self.model.pending_limits)

    # --- puts ------------------------------------------------------------------------------

    def _new_message(self) -> Sent:
        model, chance = self.model, self._chance
        number = model.next_number
        model.next_number += 1
        size = chance.choice((0, 10, 200, 1000, self._max_body_bytes))
        light = chance.random() < 0.4
        return Sent(
            number,
            chance.choice(model.topics),
            chance.randrange(2),
            f"{model.name}/{number}/".encode() + chance.randbytes(size),
            chance.choice(("", "red", "blue")),
            chance.sample(model.light_queues, chance.randrange(1, 4)) if light else [],
        )

    def _new_batch(self, session: Session) -> None:
        count = self._chance.choice((1, 2, 3, 5, 8, 40))
        model = self.model
        batch = Batch(
            model.producer_id, model.next_sequence, [self._new_message() for _ in range(count)]
        )
        model.pending = batch
        self._send(session, batch)

    def _send(self, session: Session, batch: Batch) -> None:
        """Until it is answered. Raises Gone; then it stays pending."""
        as_columns = self._chance.random() < 0.5
        try:
            answer = session.call(session.stubs.messages.PutBatch, _request(batch, as_columns))
        except Refused as refused:
            if not self._has_expired(session):
                raise
            if "the batch has expired" in str(refused):
                # It was stored, and had left the log before it was answered.
                self._give_up(batch)
                return
            if "expected" not in str(refused):
                raise
            # Nothing was known of the producer, and an old batch, sent again, became its first.
            self.model.new_producer()
            batch.producer_id, batch.sequence = self.model.producer_id, 0
            self.model.pending = batch
            answer = session.call(session.stubs.messages.PutBatch, _request(batch, as_columns))
        if not answer.repeated_batch and any(message.place for message in batch.messages):
            # It was found, and has expired since.
            self._check_some_expired(session, batch, "stored again")
            self._forget(batch)
        self._take(session, batch, answer)
        self.model.pending = None
        self.model.next_sequence = batch.sequence + len(batch.messages)
        self.model.batches.append(batch)
        del self.model.batches[:-40]
        self.acknowledged += len(batch.messages)

    def _has_expired(self, session: Session) -> bool:
        """Whether the newest batch of the producer that was answered has left the log."""
        newest = self.model.newest
        return _log_start(session) > (0 if newest is None else newest[1])

    def _give_up(self, batch: Batch) -> None:
        """The batch under way is not sent again: the judge finds it once, or not at all."""
        for message in batch.messages:
            if message.place is None:
                self.model.doubtful[message.number] = message
        self.model.pending = None
        self.model.next_sequence = batch.sequence + len(batch.messages)

    def _take(self, session: Session, batch: Batch, answer: pb.PutBatchResponse) -> None:
        lights = iter(answer.light_queue_offsets)
        if batch.store_time_ms and batch.store_time_ms != answer.store_time_ms:
            raise Failure(
                f"{batch.producer_id}:{batch.sequence}: stored at {batch.store_time_ms} ms, then "
                f"answered with {answer.store_time_ms} ms"
            )
        batch.store_time_ms = answer.store_time_ms
        newest = self.model.newest
        if batch.producer_id == self.model.producer_id and (
            newest is None or newest[0] <= batch.sequence
        ):
            self.model.newest = batch.sequence, max(answer.physical_offsets)
        for index, message in enumerate(batch.messages):
            if answer.physical_offsets[index] < 0:
                # It has expired, the answer says.
                for _ in message.light_queues:
                    next(lights)
                self._check_expired(session, message)
                continue
            place = Place(
                answer.queue_ids[index],
                answer.queue_offsets[index],
                answer.physical_offsets[index],
                {name: next(lights) for name in message.light_queues},
                answer.store_time_ms,
            )
            self.model.acknowledge(message, place)

    def _check_expired(self, session: Session, message: Sent) -> None:
        """Raises Failure unless the message lies below the log's start.

        One that its topic has hidden from the judge since has no place that is known: it lies
        behind all that were sent before it.
        """
        model = self.model
        if message.place is not None:
            least = message.place.physical_offset
        elif model.may_hide(message):
            least = max(
                (
                    sent.place.physical_offset
                    for sent in (*model.required.values(), *model.orphaned.values())
                    if sent.place is not None and sent.number < message.number
                ),
                default=0,
            )
        else:
            raise Failure(f"{message} is said to have expired, and was never seen")
        if least >= _log_start(session):
            raise Failure(f"{message} is said to have expired")

    def _single_put(self, session: Session) -> None:
        message = self._new_message()
        self.model.doubtful[message.number] = message
        request = pb.PutRequest(message=_message(message))
        answer = session.call(session.stubs.messages.Put, request, once=True)
        if answer is None:
            return  # it stays in doubt
        placed = answer.placed
        place = Place(
            placed.queue_id,
            placed.queue_offset,
            placed.physical_offset,
            dict(zip(message.light_queues, placed.light_queue_offsets, strict=True)),
            answer.store_time_ms,
        )
        self.model.acknowledge(message, place)
        self.acknowledged += 1

    def _resend(self, session: Session) -> None:
        """A batch that was acknowledged is sent again: the same answer, nothing stored."""
        if not self.model.batches:
            return
        batch = self._chance.choice(self.model.batches)
        request = _request(batch, self._chance.random() < 0.5)
        before = batch.store_time_ms
        try:
            answer = self._call_again(session, batch, request)
        except Refused as refused:
            self._expect_expired(session, batch, str(refused))
            return
        if not answer.repeated_batch:
            # Right only if it expired in between; then it is new, and stands where it says.
            self._expect_expired(session, batch, "stored again")
            self._forget(batch)
        self._take(session, batch, answer)
        if answer.repeated_batch and before != batch.store_time_ms:
            raise Failure(f"{batch.producer_id}:{batch.sequence}: another store time")
        self.resent += 1

    def _call_again(self, session: Session, batch: Batch, request: pb.PutBatchRequest) -> Any:  # noqa: ANN401 - the response
        """Under the number of a batch that was answered. Raises Refused and Gone."""
        try:
            return session.call(session.stubs.messages.PutBatch, request)
        except Gone:
            self.model.sent_again = batch
            raise

    def _resend_deleted(self, session: Session) -> None:
        """A batch of which something was deleted: what stands is never stored again."""
        model = self.model
        if not model.touched:
            return
        batch = self._chance.choice(model.touched)
        request = _request(batch, self._chance.random() < 0.5)
        standing = [message.number for message in batch.messages if model.stands(message)]
        if not standing:
            self._begin_anew(batch)
        try:
            answer = self._call_again(session, batch, request)
        except Refused as refused:
            if "another batch" in str(refused):
                raise
            if standing:
                model.touched.remove(batch)  # it has expired
            self._forget_doubtful(batch)
            return
        self.resent += 1
        if answer.repeated_batch:
            self._forget_doubtful(batch)
            return
        if standing:
            self._check_some_expired(session, batch, f"stored again over {standing}")
            self._begin_anew(batch)
        batch.store_time_ms = 0
        self._take(session, batch, answer)

    def _begin_anew(self, batch: Batch) -> None:
        """Nothing of it stands: it may be stored as new; without an answer that stays in doubt."""
        model = self.model
        for message in batch.messages:
            model.required.pop(message.number, None)
            model.orphaned.pop(message.number, None)
            message.topic_deleted, message.place = False, None
            message.left.clear()
            model.doubtful[message.number] = message
        model.touched.remove(batch)

    def _forget_doubtful(self, batch: Batch) -> None:
        """Nothing of it was stored now."""
        for message in batch.messages:
            self.model.doubtful.pop(message.number, None)

    def _altered(self, session: Session) -> None:
        """Other content under a number that was used: refused, nothing stored."""
        if not self.model.batches:
            return
        batch = self._chance.choice(self.model.batches)
        messages = [_message(message) for message in batch.messages]
        how = self._chance.randrange(4)
        if how == 0:
            messages[-1].body += b"!"
        elif how == 1:
            messages.append(_message(batch.messages[0]))
            messages[-1].body += b"more"
        elif how == 2 and len(messages) > 1:
            del messages[-1]
        else:
            messages[0].body = b"another for %d" % batch.messages[0].number
        sent = {message.body for message in batch.messages}
        places = [message.place for message in batch.messages]
        self.model.altered.update(
            (message.body, places) for message in messages if message.body not in sent
        )
        request = pb.PutBatchRequest(
            messages=messages,
            producer=pb.ProducerSequence(producer_id=batch.producer_id, sequence=batch.sequence),
        )
        try:
            answer = self._call_again(session, batch, request)
        except Refused:
            self.refused += 1
            return
        self._expect_expired(
            session,
            batch,
            f"other content under its number was taken, repeated: {answer.repeated_batch}",
        )
        # It had expired, and this was stored for it: what was not altered stands anew.
        self._forget(batch)
        stored = {message.body for message in messages}
        self.model.doubtful.update(
            (message.number, message) for message in batch.messages if message.body in stored
        )
        raise Gone  # where, stays unknown

    def _forget(self, batch: Batch) -> None:
        """Where it stood: it has expired, and is stored anew."""
        batch.store_time_ms = 0
        for message in batch.messages:
            message.place = None
            self.model.required.pop(message.number, None)

    def _check_some_expired(self, session: Session, batch: Batch, what: str) -> None:
        """Raises Failure unless a message of the batch lies below the log's start now."""
        start = _log_start(session)
        places = [message.place for message in batch.messages]
        if not any(place is not None and place.physical_offset < start for place in places):
            raise Failure(
                f"{batch.producer_id}:{batch.sequence}, acknowledged, at {places}, the log begins "
                f"at {start}: {what}"
            )

    def _expect_expired(self, session: Session, batch: Batch, what: str) -> None:
        """The same; the batch is not sent again any more."""
        self._check_some_expired(session, batch, what)
        self.model.batches.remove(batch)

    # --- the rest --------------------------------------------------------------------------

    def _commit(self, session: Session) -> None:
        model = self.model
        topic, queue_id = self._chance.choice(model.topics), self._chance.randrange(2)
        ends = [
            sent.place.queue_offset + 1
            for sent in model.required.values()
            if sent.topic == topic and sent.place is not None and sent.place.queue_id == queue_id
        ]
        if not ends:
            return
        offset = self._chance.choice(ends)
        key = (topic, queue_id)
        model.committed.setdefault(key, {None}).add(offset)
        position = pb.QueuePosition(topic=topic, queue_id=queue_id, offset=offset)
        session.call(
            session.stubs.groups.CommitOffsets,
            pb.CommitOffsetsRequest(group=model.group, offsets=[position], allow_back=True),
        )
        model.committed[key] = {offset}

    def _delete(self, session: Session) -> None:
        model = self.model
        names = {sent.topic for sent in model.required.values()}
        lights = {
            name
            for sent in model.required.values()
            for name in sent.light_queues
            if name not in sent.left
        }
        candidates = sorted(names) + sorted(lights)
        if not candidates:
            return
        model.pending_deletion = self._chance.choice(candidates)
        self._finish_deletion(session)

    def _finish_deletion(self, session: Session) -> None:
        name = self.model.pending_deletion
        try:
            session.call(session.stubs.topics.DeleteTopic, pb.DeleteTopicRequest(name=name))
        except Refused as refused:
            if refused.code is not grpc.StatusCode.NOT_FOUND:
                raise
        if name.startswith("%LMQ%"):
            self.model.light_queue_deleted(name)
        else:
            self.model.topic_deleted(name)
        self.model.pending_deletion = ""
        self.deleted += 1

    def _limit(self, session: Session) -> None:
        """A topic keeps less, or more, from now on."""
        if self.limited:
            limits = choose(self._chance, self.longest_ms)
            self.model.pending_limits = (self._chance.choice(self.limited), limits)
            self._finish_limit(session, *self.model.pending_limits)

    def _finish_limit(self, session: Session, topic: str, limits: Limits) -> None:
        topics = session.stubs.topics
        try:
            request = pb.UpdateTopicRequest(
                name=topic,
                retention_time_ms=limits.time_ms,
                retention_bytes=limits.size_bytes,
                retention_messages=limits.messages,
                retention_latest=limits.latest,
            )
            session.call(topics.UpdateTopic, request)
        except Refused as refused:
            if refused.code is not grpc.StatusCode.NOT_FOUND:
                raise
            retention = pb.Retention(
                time_ms=limits.time_ms,
                bytes=limits.size_bytes,
                messages=limits.messages,
                latest=limits.latest,
            )
            created = pb.CreateTopicRequest(name=topic, queue_count=2, retention=retention)
            session.call(topics.CreateTopics, pb.CreateTopicsRequest(topics=[created]))
        self.model.kept[topic].change(limits)
        self.model.pending_limits = None
        self.limits_set += 1


def _log_start(session: Session) -> int:
    values = session.call(session.stubs.admin.GetStatistics, pb.GetStatisticsRequest()).values
    if "store.log_start_offset" not in values:
        raise Gone  # it drains, and does not say any more
    return int(values["store.log_start_offset"])


def _message(sent: Sent) -> pb.Message:
    return pb.Message(
        topic=sent.topic,
        queue_id=sent.queue_id,
        body=sent.body,
        tag=sent.tag,
        keys=[sent.key],
        light_queues=sent.light_queues,
    )


def _request(batch: Batch, as_columns: bool) -> pb.PutBatchRequest:
    producer = pb.ProducerSequence(producer_id=batch.producer_id, sequence=batch.sequence)
    messages: Sequence[Sent] = batch.messages
    if not as_columns:
        return pb.PutBatchRequest(messages=map(_message, messages), producer=producer)
    topics = sorted({message.topic for message in messages})
    return pb.PutBatchRequest(
        columns=pb.MessageColumns(
            topics=topics,
            topic_indexes=[topics.index(message.topic) for message in messages],
            queue_ids=[message.queue_id for message in messages],
            bodies=[message.body for message in messages],
            tags=[message.tag for message in messages],
            keys=[message.key for message in messages],
            light_queues=[",".join(message.light_queues) for message in messages],
        ),
        producer=producer,
    )
