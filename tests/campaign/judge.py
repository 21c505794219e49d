"""Reads everything back, and holds it against the models.

While a judge reads no worker calls; retention may still drop segments.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

import grpc

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from tests.campaign.model import Failure, Place
from tests.campaign.retention import (
    TIMEOUT_S,
    Found,
    Read,
    RetentionJudge,
    ask_bounds,
    now_ms,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from tests.campaign.limits import Bounds
    from tests.campaign.model import Model, Sent
    from tests.campaign.session import Stubs


class Verdict(NamedTuple):
    messages: int
    lost: int
    expired: int
    hidden: Counter[str]  # messages in the log that their topics do not keep, by the limit


def judge(
    stubs: Stubs,
    models: Iterable[Model],
    chance: random.Random,
    *,
    cut_at: int | None = None,
    wrong_since_s: float | None,
) -> Verdict:
    """Raises Failure at the first thing that must hold and does not.

    `cut_at`: the power was lost and puts were not fsynced: what lay behind that physical offset,
    where the log ended then, may be missing, and nothing else; above the log's end it is that.
    `wrong_since_s`: `time.monotonic` since when the server's clock was not right all the time;
    None: it always was.
    """
    statistics = stubs.admin.GetStatistics(pb.GetStatisticsRequest(), timeout=TIMEOUT_S).values
    end = int(statistics["store.log_appended_offset"])
    may_lose = cut_at is not None
    messages = lost = expired = 0
    hidden: Counter[str] = Counter()
    for model in models:
        if cut_at is not None:
            lost += model.lost_behind(min(cut_at, end))
        reads: dict[str, Read] = {}
        retention = RetentionJudge(stubs, model, reads, wrong_since_s=wrong_since_s)
        retention.check_limits(may_lose=may_lose)
        reads |= {name: _read(stubs, model, name, (0, 1)) for name in model.topics}
        reads |= {name: _read(stubs, model, name, (0,)) for name in model.light_queues}
        statistics = stubs.admin.GetStatistics(pb.GetStatisticsRequest(), timeout=TIMEOUT_S).values
        start = int(statistics["store.log_start_offset"])
        expired += model.expired_below(start)
        messages += _compare(model, reads, retention, start)
        retention.check_bounds(may_lose=may_lose)
        retention.check_answers()
        _compare_keys(stubs, model, retention, chance)
        _compare_committed(stubs, model, reads, may_lose=may_lose)
        if chance.random() < 0.1:
            retention.wait_until_counted()
        hidden += retention.counts
        if may_lose:
            # What it had acknowledged may be gone, so it has no place in its sequence any more.
            model.new_producer()
    return Verdict(messages, lost, expired, hidden)


def check_latest(stubs: Stubs, model: Model, topic: str, *, all_durable: bool) -> None:
    """A job has hidden all but the latest message of each key. What is not durable hides nothing;
    what is the latest is seen, says `judge`."""
    seen: Counter[tuple[int, str]] = Counter()
    for each in _read(stubs, model, topic, (0, 1)).found:
        seen[each.queue_id, each.message.keys[0]] += 1
    for (queue_id, key), count in seen.items():
        if count > 1 and all_durable:
            raise Failure(f"{topic}/{queue_id} shows {count} messages of {key}")


def _read(stubs: Stubs, model: Model, name: str, queue_ids: Iterable[int]) -> Read:
    """All of a topic or light queue. Raises Failure on a hole, or any error but absence."""
    read = Read(now_ms(), [], {})
    may_leave_out = model.kept[name].was_latest
    for queue_id in queue_ids:
        while True:
            try:
                read.bounds[queue_id] = ask_bounds(stubs, name, queue_id)
                read.found.extend(
                    _read_queue(stubs, name, queue_id, read.bounds[queue_id], may_leave_out)
                )
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.NOT_FOUND:
                    read.bounds.pop(queue_id, None)
                elif error.code() is grpc.StatusCode.OUT_OF_RANGE:
                    continue  # its first messages went just now
                else:
                    raise Failure(f"{name}/{queue_id}: {error.details()}") from error
            break
    return read


def _read_queue(
    stubs: Stubs, name: str, queue_id: int, bounds: Bounds, may_leave_out: bool
) -> list[Found]:
    found: list[Found] = []
    offset = bounds.low
    while True:
        pulled = stubs.messages.Pull(
            pb.PullRequest(
                topic=name,
                queue_id=queue_id,
                offset=offset,
                max_messages=5000,
                form=pb.RECORD_FORM_DECODED,
            ),
            timeout=TIMEOUT_S,
        )
        for message in pulled.messages:
            at = message.queue_offset
            if at < offset or (at > offset and not may_leave_out):
                raise Failure(f"{name}/{queue_id}: {at} where {offset} is due")
            found.append(Found(queue_id, at, message))
            offset = at + 1
        if not pulled.messages and pulled.next_offset == offset:
            if offset == pulled.max_offset:
                return found
            raise Failure(f"{name}/{queue_id}: nothing at {offset} of {pulled.max_offset}")
        if pulled.next_offset < offset or (pulled.next_offset > offset and not may_leave_out):
            raise Failure(f"{name}/{queue_id}: {pulled.next_offset} is said to follow {offset}")
        offset = pulled.next_offset


def _compare(model: Model, reads: dict[str, Read], retention: RetentionJudge, start: int) -> int:
    found: dict[int, tuple[str, Found]] = {}
    for topic, each in _all_of(reads, model.topics):
        if _was_altered(model, each.message.body, start):
            continue
        number = _number(model, each.message.body)
        if number in found:
            raise Failure(f"{model.name}/{number} stands twice: {found[number]} and {topic} {each}")
        found[number] = (topic, each)
    model.stored_anew({at: each.message.physical_offset for at, (_, each) in found.items()}, start)
    in_lights: dict[int, dict[str, Found]] = defaultdict(dict)
    for name, each in _all_of(reads, model.light_queues):
        if _was_altered(model, each.message.body, start):
            continue
        number = _number(model, each.message.body)
        if name in in_lights[number]:
            raise Failure(f"{model.name}/{number} stands twice in {name}")
        in_lights[number][name] = each
    pending = {sent.number: sent for sent in model.pending.messages} if model.pending else {}
    _settle_pending(model, pending, found, in_lights, start)
    for number, sent in list(model.doubtful.items()):
        if number not in found and model.may_hide(sent):
            continue  # hidden, or not there
        if number in found or number in in_lights:
            _settle(model, sent, found.get(number), in_lights[number], start)
        else:
            del model.doubtful[number]
    for number, (topic, each) in found.items():
        if number not in model.required and number not in pending:
            if each.message.physical_offset < start:
                continue  # dropped while it was read
            if topic == model.pending_deletion and number in model.orphaned:
                continue
            raise Failure(f"{model.name}/{number} must not be there: {topic} {each}")
    for number, names in in_lights.items():
        known = (
            model.required.get(number)
            or model.orphaned.get(number)
            or pending.get(number)
            or model.doubtful.get(number)
        )
        for name, each in names.items():
            if each.message.physical_offset < start:
                continue
            if known is None or name not in known.light_queues or name in known.left:
                raise Failure(f"{model.name}/{number} must not be in {name}: {each}")
    for number, sent in model.required.items():
        if sent.topic != model.pending_deletion:
            _check_place(model, retention, sent, found.get(number))
        _check_lights(model, retention, sent, in_lights[number])
    for number, sent in model.orphaned.items():
        _check_lights(model, retention, sent, in_lights[number])
    return len(found) + sum(map(len, in_lights.values()))


def _all_of(reads: dict[str, Read], names: Iterable[str]) -> Iterable[tuple[str, Found]]:
    return ((name, each) for name in names for each in reads[name].found)


def _settle_pending(
    model: Model,
    pending: dict[int, Sent],
    found: dict[int, tuple[str, Found]],
    in_lights: dict[int, dict[str, Found]],
    start: int,
) -> None:
    """All of the batch that was under way, or none of it."""
    there = [number for number in pending if number in found]
    sure = [number for number, sent in pending.items() if not model.may_hide(sent)]
    if not there:
        if any(in_lights[number] for number in sure):
            raise Failure(f"{model.pending}: in light queues, and not in its topic")
        return
    absent = [number for number in sure if number not in found]
    first = min(found[number][1].message.physical_offset for number in there)
    if absent and first > start:
        raise Failure(
            f"{model.pending and model.pending.sequence}: a torn batch: of {len(pending)} messages "
            f"{there} are there, {absent} are not"
        )
    for number in there:
        message, each = pending[number], found[number][1]
        if each.message.physical_offset < start:
            continue  # dropped while it was read, and gone from some of its queues
        missing = set(message.light_queues) - set(in_lights[number]) - model.limited_lights
        if missing:
            raise Failure(f"{model.name}/{number}: not in {missing}, but in its topic")
        # The answer to the same batch, sent again, must agree.
        model.acknowledge(message, _place(each, in_lights[number]))


def _settle(
    model: Model, sent: Sent, found: tuple[str, Found] | None, lights: dict[str, Found], start: int
) -> None:
    """A message in doubt was found: from now on it must stay."""
    each = next(iter(lights.values())) if found is None else found[1]
    if each.message.physical_offset < start:
        del model.doubtful[sent.number]  # dropped while it was read
        return
    missing = set(sent.light_queues) - set(lights) - sent.left - model.limited_lights
    if missing or (found is None) != sent.topic_deleted:
        raise Failure(f"{model.name}/{sent.number}: {found}, {list(lights)}; not in {missing}")
    model.acknowledge(sent, _place(each, lights))


def _place(each: Found, lights: dict[str, Found]) -> Place:
    return Place(
        each.queue_id,
        each.queue_offset,
        each.message.physical_offset,
        {name: light.queue_offset for name, light in lights.items()},
        each.message.store_time_ms,
    )


def _check_place(
    model: Model, retention: RetentionJudge, sent: Sent, found: tuple[str, Found] | None
) -> None:
    what = f"{model.name}/{sent.number}, acknowledged for {sent.topic} at {sent.place}"
    assert sent.place is not None
    if found is None:
        if retention.hides(sent.topic, sent.place.queue_id, sent.place.queue_offset, sent):
            return
        raise Failure(f"{what}: lost; {model.kept[sent.topic]}")
    topic, each = found
    position = (each.queue_id, each.queue_offset, each.message.physical_offset)
    if topic != sent.topic or position != sent.place[:3] or each.message.body != sent.body:
        raise Failure(f"{what}: found at {topic} {position}")
    if each.message.store_time_ms != sent.place.store_time_ms:
        raise Failure(f"{what}: stored at {each.message.store_time_ms} ms")


def _check_lights(
    model: Model, retention: RetentionJudge, sent: Sent, lights: dict[str, Found]
) -> None:
    assert sent.place is not None
    for name in sent.light_queues:
        if name in sent.left or name == model.pending_deletion:
            continue
        each = lights.get(name)
        wanted = sent.place.light_offsets.get(name)
        if each is None:
            if wanted is None and name in model.limited_lights:
                continue
            if wanted is not None and retention.hides(name, 0, wanted, sent):
                continue
            raise Failure(
                f"{model.name}/{sent.number}: lost from {name}, offset {wanted}; {model.kept[name]}"
            )
        if wanted is not None and each.queue_offset != wanted:
            raise Failure(f"{model.name}/{sent.number}: {name} {each.queue_offset}, not {wanted}")


def _compare_keys(
    stubs: Stubs, model: Model, retention: RetentionJudge, chance: random.Random
) -> None:
    """What the index has under one key of each topic."""
    key = f"k{chance.randrange(50)}"
    for topic in model.topics:
        if topic == model.pending_deletion:
            continue
        wanted = {
            sent.number
            for sent in model.required.values()
            if (sent.topic, sent.key) == (topic, key)
        }
        hidden = {sent.number for sent in retention.hidden[topic]}
        wanted -= hidden
        pending = {sent.number for sent in (model.pending.messages if model.pending else ())}
        found: list[int] = []
        cursor, complete = b"", False
        while not complete:
            try:
                page = stubs.messages.Query(
                    pb.QueryRequest(topic=topic, key=key, max_messages=100, cursor=cursor),
                    timeout=TIMEOUT_S,
                )
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.NOT_FOUND and not wanted:
                    break
                raise Failure(f"{topic} {key}: {error.details()}") from error
            found += [_number(model, message.body) for message in page.messages]
            cursor, complete = page.cursor, page.complete
        if len(set(found)) != len(found) or not set(found) - pending <= wanted:
            raise Failure(f"{topic} {key}: found {sorted(found)}, wanted {sorted(wanted)}")
        gone = wanted - set(found)
        if gone:
            values = stubs.admin.GetStatistics(pb.GetStatisticsRequest(), timeout=TIMEOUT_S).values
            model.expired_below(int(values["store.log_start_offset"]))
            gone = {
                number
                for number in gone & set(model.required)
                if not retention.hides_by_now(topic, model.required[number])
            }
        if gone:
            raise Failure(f"{topic} {key}: {sorted(gone)} are not in the index")


def _compare_committed(
    stubs: Stubs, model: Model, reads: dict[str, Read], *, may_lose: bool
) -> None:
    for (topic, queue_id), wanted in list(model.committed.items()):
        if topic == model.pending_deletion:
            continue
        try:
            answer = stubs.groups.FetchOffsets(
                pb.FetchOffsetsRequest(
                    group=model.group, queues=[pb.Queue(topic=topic, queue_id=queue_id)]
                ),
                timeout=TIMEOUT_S,
            )
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND and (may_lose or not reads[topic].found):
                continue
            raise Failure(f"{model.group} {topic}/{queue_id}: {error.details()}") from error
        [group_offset] = answer.offsets
        found = group_offset.offset if group_offset.HasField("offset") else None
        if may_lose:
            # It may be an earlier one, but never beyond the end of its queue.
            if found is not None and found > group_offset.max_offset:
                raise Failure(f"{model.group} {topic}/{queue_id}: {found} is beyond the queue")
        elif found not in wanted:
            raise Failure(f"{model.group} {topic}/{queue_id}: {found}, committed {wanted}")
        model.committed[topic, queue_id] = {found}


def _was_altered(model: Model, body: bytes, start: int) -> bool:
    """Whether it was sent under a number that was used, and could be stored: what had the number
    has expired since. The log begins at `start`."""
    places = model.altered.get(body)
    if places is None:
        return False
    if not any(place is not None and place.physical_offset < start for place in places):
        raise Failure(f"{body[:40]!r} was stored under a number that {places} have")
    return True


def _number(model: Model, body: bytes) -> int:
    name, number, _ = body.split(b"/", 2)
    if name.decode() != model.name:
        raise Failure(f"a message of {name.decode()} in a queue of {model.name}")
    return int(number)
