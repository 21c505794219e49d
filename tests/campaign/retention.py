"""Judges what topics keep: what readers do not see is past a limit; what is past one is gone."""

from __future__ import annotations

from collections import Counter, defaultdict
from time import monotonic, sleep, time
from typing import TYPE_CHECKING, NamedTuple

import grpc

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from tests.campaign.limits import SLACK_MS, Bounds, Limits, Queue
from tests.campaign.model import Failure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.campaign.model import Model, Sent
    from tests.campaign.session import Stubs

TIMEOUT_S = 60.0
#: Bytes are counted within a second or two.
_COUNTED_S = 20.0
_EXAMPLES = 3


class Found(NamedTuple):
    """One message of one queue."""

    queue_id: int
    queue_offset: int
    message: pb.StoredMessage


class Read(NamedTuple):
    """All that readers see of a topic or light queue."""

    began_ms: float  # by the clock of this machine
    found: list[Found]
    bounds: dict[int, Bounds]  # by queue id, as its reading began


class RetentionJudge:
    """Of one model, at one look at the store."""

    def __init__(
        self,
        stubs: Stubs,
        model: Model,
        reads: Mapping[str, Read],
        *,
        wrong_since_s: float | None,
    ) -> None:
        """`wrong_since_s`: `time.monotonic` since when the server's clock was not right all the
        time; None: it always was."""
        self._stubs = stubs
        self._model = model
        self._reads = reads
        self._wrong_since_s = wrong_since_s
        self._clock_moved = wrong_since_s is not None
        self._queues: dict[tuple[str, int], Queue] = {}
        #: By topic or light queue, those that readers rightly do not see.
        self.hidden: defaultdict[str, list[Sent]] = defaultdict(list)
        self.counts: Counter[str] = Counter()

    def check_limits(self, *, may_lose: bool) -> None:
        """The server knows what each topic keeps. An answer that never came is settled here."""
        model = self._model
        for topic in model.topics:
            if topic == model.pending_deletion:
                continue
            kept = model.kept[topic]
            try:
                answer = self._stubs.topics.DescribeTopic(
                    pb.DescribeTopicRequest(name=topic), timeout=TIMEOUT_S
                )
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.NOT_FOUND or (kept.hides and not may_lose):
                    raise Failure(f"{topic}, to keep {kept.limits}: {error.details()}") from error
                continue
            told = answer.topic.retention
            limits = Limits(told.time_ms, told.bytes, told.messages, told.latest)
            if limits != kept.limits and (topic, limits) != model.pending_limits and not may_lose:
                raise Failure(f"{topic} was to keep {kept.limits}, and keeps {limits}")
            kept.change(limits)

    def hides(self, name: str, queue_id: int, offset: int, sent: Sent) -> bool:
        """Whether a limit hides the message there, which readers do not see."""
        why = self._why_hidden(name, queue_id, offset, sent)
        if why:
            self.counts[why] += 1
            self.hidden[name].append(sent)
        return bool(why)

    def hides_by_now(self, name: str, sent: Sent) -> bool:
        """The same of a message that was seen a moment ago."""
        assert sent.place is not None
        queue = self._queue(name, sent.place.queue_id)
        queue.bounds = self._ask_bounds(name, sent.place.queue_id)
        return bool(self._why_hidden(name, sent.place.queue_id, sent.place.queue_offset, sent))

    def _why_hidden(self, name: str, queue_id: int, offset: int, sent: Sent) -> str:
        kept = self._model.kept[name]
        if not kept.hides or queue_id not in self._reads[name].bounds:
            return ""
        queue = self._queue(name, queue_id)
        return kept.why_hidden(queue, offset, sent, wrong_since_s=self._wrong_since_s)

    def _queue(self, name: str, queue_id: int) -> Queue:
        queue = self._queues.get((name, queue_id))
        if queue is None:
            standing = {}
            for sent in (*self._model.required.values(), *self._model.orphaned.values()):
                place = sent.place
                assert place is not None
                if name in place.light_offsets and name not in sent.left:
                    standing[place.light_offsets[name]] = sent
                elif (sent.topic, place.queue_id) == (name, queue_id) and not sent.topic_deleted:
                    standing[place.queue_offset] = sent
            queue = Queue(self._reads[name].bounds[queue_id], standing)
            self._queues[name, queue_id] = queue
        return queue

    def check_bounds(self, *, may_lose: bool) -> None:
        """No queue begins before it did, none has more than it may."""
        for name, read in self._reads.items():
            kept = self._model.kept[name]
            if name == self._model.pending_deletion:
                continue
            if may_lose:
                kept.lows.clear()
            for queue_id, (low, high, *_) in read.bounds.items():
                if kept.goes_back(queue_id, low, clock_moved=self._clock_moved):
                    raise Failure(f"{name}/{queue_id} begins at {low}, and began later before")
                if 0 < kept.limits.messages < high - low:
                    raise Failure(f"{name}/{queue_id} keeps {low} to {high}: {kept.limits}")
            if kept.limits.time_ms and not self._clock_moved:
                oldest_ms = read.began_ms - kept.limits.time_ms - SLACK_MS
                for each in read.found:
                    if each.message.store_time_ms < oldest_ms:
                        raise Failure(f"{name} shows what is older than {kept.limits}: {each}")

    def check_answers(self) -> None:
        """What a queue does not keep is answered as expired, however it is asked for."""
        for name, read in self._reads.items():
            if not self._model.kept[name].hides or name == self._model.pending_deletion:
                continue
            for queue_id, (low, *_) in read.bounds.items():
                self._check_pull_below(name, queue_id, low)
                request = pb.SearchTimeRequest(
                    topic=name,
                    queue_id=queue_id,
                    time_ms=1,
                    boundary=pb.TIME_BOUNDARY_LOWER,
                )
                offset = self._stubs.messages.SearchTime(request, timeout=TIMEOUT_S).offset
                if offset < low:
                    raise Failure(f"{name}/{queue_id}: by time {offset}, and begins at {low}")
            if read.found and not name.startswith("%LMQ%"):
                self._check_ids(name, read.found[0].message.message_id)

    def _check_pull_below(self, name: str, queue_id: int, low: int) -> None:
        if low == 0:
            return
        request = pb.PullRequest(topic=name, queue_id=queue_id, offset=low - 1, max_messages=1)
        try:
            self._stubs.messages.Pull(request, timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.OUT_OF_RANGE:
                return
            raise Failure(f"{name}/{queue_id} below {low}: {error.details()}") from error
        raise Failure(f"{name}/{queue_id} begins at {low}, and shows what is before")

    def _check_ids(self, name: str, message_id: str) -> None:
        """`message_id`: of any message; ids end with the place in the log."""
        for sent in self.hidden[name][-_EXAMPLES:]:
            assert sent.place is not None
            hidden_id = f"{message_id[:-16]}{sent.place.physical_offset:016X}"
            try:
                self._stubs.messages.Get(pb.GetRequest(message_id=hidden_id), timeout=TIMEOUT_S)
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.NOT_FOUND:
                    continue
                raise Failure(f"{sent} by id: {error.details()}") from error
            raise Failure(f"{sent} is hidden, and found by its id")

    def wait_until_counted(self) -> None:
        """Queues that keep so many bytes have no more, once they were counted."""
        for name, read in self._reads.items():
            limit = self._model.kept[name].limits.size_bytes
            if not limit or name == self._model.pending_deletion:
                continue
            for queue_id in read.bounds:
                queue = self._queue(name, queue_id)
                until_s = monotonic() + _COUNTED_S
                while queue.bounds.high - queue.bounds.low > 1 and queue.least_bytes_kept() > limit:
                    if monotonic() > until_s:
                        raise Failure(f"{name}/{queue_id} keeps {queue.bounds}, not {limit} bytes")
                    sleep(0.05)
                    queue.bounds = self._ask_bounds(name, queue_id)

    def _ask_bounds(self, name: str, queue_id: int) -> Bounds:
        return ask_bounds(self._stubs, name, queue_id)


def ask_bounds(stubs: Stubs, name: str, queue_id: int) -> Bounds:
    """Raises grpc.RpcError."""
    request = pb.GetOffsetsRequest(queues=[pb.Queue(topic=name, queue_id=queue_id)])
    [queue] = stubs.messages.GetOffsets(request, timeout=TIMEOUT_S).queues
    return Bounds(queue.min_offset, queue.max_offset, monotonic(), now_ms())


def now_ms() -> float:
    """Of this machine, milliseconds since 1970."""
    return time() * 1000
