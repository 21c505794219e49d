"""Reads everything back, and holds it against the models.

While a judge reads no worker calls; retention may still drop segments.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import grpc

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from tests.campaign.model import Failure, Place

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from tests.campaign.model import Model, Sent
    from tests.campaign.workload import Stubs

_TIMEOUT_S = 60.0


class Found(NamedTuple):
    """One message of one queue."""

    queue_id: int
    queue_offset: int
    message: pb.StoredMessage


class Verdict(NamedTuple):
    messages: int
    lost: int
    expired: int


def judge(
    stubs: Stubs, models: Iterable[Model], chance: random.Random, *, may_lose: bool
) -> Verdict:
    """Raises Failure at the first thing that must hold and does not.

    `may_lose`: the power was lost and puts were not fsynced: what lies behind the log's end
    may be missing, and nothing else.
    """
    statistics = stubs.admin.GetStatistics(pb.GetStatisticsRequest(), timeout=_TIMEOUT_S).values
    end = int(statistics["store.log_appended_offset"])
    messages = lost = expired = 0
    for model in models:
        if may_lose:
            lost += model.lost_behind(end)
        topics = {name: _read(stubs, name, (0, 1)) for name in model.topics}
        lights = {name: _read(stubs, name, (0,)) for name in model.light_queues}
        statistics = stubs.admin.GetStatistics(pb.GetStatisticsRequest(), timeout=_TIMEOUT_S).values
        start = int(statistics["store.log_start_offset"])
        expired += model.expired_below(start)
        messages += _compare(model, topics, lights, start, may_lose=may_lose)
        _compare_keys(stubs, model, chance)
        _compare_committed(stubs, model, topics, may_lose=may_lose)
        if may_lose:
            # What it had acknowledged may be gone, so it has no place in its sequence any more.
            model.new_producer()
    return Verdict(messages, lost, expired)


def _read(stubs: Stubs, name: str, queue_ids: Iterable[int]) -> list[Found]:
    """All of a topic or light queue. Raises Failure on a hole, or any error but absence."""
    found: list[Found] = []
    for queue_id in queue_ids:
        offset: int | None = None
        while True:
            try:
                if offset is None:
                    answer = stubs.messages.GetOffsets(
                        pb.GetOffsetsRequest(queues=[pb.Queue(topic=name, queue_id=queue_id)]),
                        timeout=_TIMEOUT_S,
                    )
                    offset = answer.queues[0].min_offset
                pulled = stubs.messages.Pull(
                    pb.PullRequest(
                        topic=name,
                        queue_id=queue_id,
                        offset=offset,
                        max_messages=5000,
                        form=pb.RECORD_FORM_DECODED,
                    ),
                    timeout=_TIMEOUT_S,
                )
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.NOT_FOUND:
                    break
                if error.code() is grpc.StatusCode.OUT_OF_RANGE:
                    # Its first segments were dropped just now.
                    found = [each for each in found if each.queue_id != queue_id]
                    offset = None
                    continue
                raise Failure(f"{name}/{queue_id} at {offset}: {error.details()}") from error
            for message in pulled.messages:
                if message.queue_offset != offset:
                    raise Failure(
                        f"{name}/{queue_id}: {message.queue_offset} where {offset} is due"
                    )
                found.append(Found(queue_id, offset, message))
                offset += 1
            if not pulled.messages:
                if pulled.next_offset == pulled.max_offset == offset:
                    break
                raise Failure(f"{name}/{queue_id}: nothing at {offset} of {pulled.max_offset}")
    return found


def _compare(
    model: Model,
    topics: dict[str, list[Found]],
    lights: dict[str, list[Found]],
    start: int,
    *,
    may_lose: bool,
) -> int:
    found: dict[int, tuple[str, Found]] = {}
    for topic, each in ((topic, each) for topic, all_of in topics.items() for each in all_of):
        number = _number(model, each.message.body)
        if number in found:
            raise Failure(f"{model.name}/{number} stands twice: {found[number]} and {topic} {each}")
        found[number] = (topic, each)
    in_lights: dict[int, dict[str, Found]] = defaultdict(dict)
    for name, each in ((name, each) for name, all_of in lights.items() for each in all_of):
        number = _number(model, each.message.body)
        if name in in_lights[number]:
            raise Failure(f"{model.name}/{number} stands twice in {name}")
        in_lights[number][name] = each
    pending = {sent.number: sent for sent in model.pending.messages} if model.pending else {}
    _settle_pending(model, pending, found, in_lights, start)
    for number, sent in list(model.doubtful.items()):
        if number in found or number in in_lights:
            _settle(model, sent, found.get(number), in_lights[number])
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
        known = model.required.get(number) or model.orphaned.get(number) or pending.get(number)
        for name, each in names.items():
            if each.message.physical_offset < start:
                continue
            if known is None or name not in known.light_queues or name in known.left:
                raise Failure(f"{model.name}/{number} must not be in {name}: {each}")
    for number, sent in model.required.items():
        if sent.topic != model.pending_deletion:
            _check_place(model, sent, found.get(number))
        _check_lights(model, sent, in_lights[number])
    for number, sent in model.orphaned.items():
        _check_lights(model, sent, in_lights[number])
    assert not (may_lose and model.doubtful)
    return len(found) + sum(map(len, in_lights.values()))


def _settle_pending(
    model: Model,
    pending: dict[int, Sent],
    found: dict[int, tuple[str, Found]],
    in_lights: dict[int, dict[str, Found]],
    start: int,
) -> None:
    """All of the batch that was under way, or none of it."""
    there = [number for number in pending if number in found]
    if not there:
        if any(in_lights[number] for number in pending):
            raise Failure(f"{model.pending}: in light queues, and not in its topic")
        return
    absent = [number for number in pending if number not in found]
    first = min(found[number][1].message.physical_offset for number in there)
    if absent and first > start:
        raise Failure(
            f"{model.pending and model.pending.sequence}: a torn batch: of {len(pending)} messages "
            f"{there} are there, {absent} are not"
        )
    for number in there:
        message, each = pending[number], found[number][1]
        missing = set(message.light_queues) - set(in_lights[number])
        if missing and each.message.physical_offset >= start:
            raise Failure(f"{model.name}/{number}: not in {missing}, but in its topic")
        # The answer to the same batch, sent again, must agree.
        model.acknowledge(message, _place(each, in_lights[number]))


def _settle(
    model: Model, sent: Sent, found: tuple[str, Found] | None, lights: dict[str, Found]
) -> None:
    """A message in doubt was found: from now on it must stay."""
    missing = set(sent.light_queues) - set(lights) - sent.left
    if missing or (found is None) != sent.topic_deleted:
        raise Failure(f"{model.name}/{sent.number}: {found}, {list(lights)}; not in {missing}")
    each = next(iter(lights.values())) if found is None else found[1]
    model.acknowledge(sent, _place(each, lights))


def _place(each: Found, lights: dict[str, Found]) -> Place:
    return Place(
        each.queue_id,
        each.queue_offset,
        each.message.physical_offset,
        {name: light.queue_offset for name, light in lights.items()},
        each.message.store_time_ms,
    )


def _check_place(model: Model, sent: Sent, found: tuple[str, Found] | None) -> None:
    what = f"{model.name}/{sent.number}, acknowledged for {sent.topic} at {sent.place}"
    if found is None:
        raise Failure(f"{what}: lost")
    topic, each = found
    assert sent.place is not None
    position = (each.queue_id, each.queue_offset, each.message.physical_offset)
    if topic != sent.topic or position != sent.place[:3] or each.message.body != sent.body:
        raise Failure(f"{what}: found at {topic} {position}")
    if each.message.store_time_ms != sent.place.store_time_ms:
        raise Failure(f"{what}: stored at {each.message.store_time_ms} ms")


def _check_lights(model: Model, sent: Sent, lights: dict[str, Found]) -> None:
    assert sent.place is not None
    for name in sent.light_queues:
        if name in sent.left or name == model.pending_deletion:
            continue
        each = lights.get(name)
        wanted = sent.place.light_offsets.get(name)
        if each is None:
            raise Failure(f"{model.name}/{sent.number}: lost from {name}, offset {wanted}")
        if wanted is not None and each.queue_offset != wanted:
            raise Failure(f"{model.name}/{sent.number}: {name} {each.queue_offset}, not {wanted}")


def _compare_keys(stubs: Stubs, model: Model, chance: random.Random) -> None:
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
        pending = {sent.number for sent in (model.pending.messages if model.pending else ())}
        found: list[int] = []
        cursor, complete = b"", False
        while not complete:
            try:
                page = stubs.messages.Query(
                    pb.QueryRequest(topic=topic, key=key, max_messages=100, cursor=cursor),
                    timeout=_TIMEOUT_S,
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
            values = stubs.admin.GetStatistics(pb.GetStatisticsRequest(), timeout=_TIMEOUT_S).values
            model.expired_below(int(values["store.log_start_offset"]))
            gone &= set(model.required)
        if gone:
            raise Failure(f"{topic} {key}: {sorted(gone)} are not in the index")


def _compare_committed(
    stubs: Stubs, model: Model, topics: dict[str, list[Found]], *, may_lose: bool
) -> None:
    for (topic, queue_id), wanted in list(model.committed.items()):
        if topic == model.pending_deletion:
            continue
        try:
            answer = stubs.groups.FetchOffsets(
                pb.FetchOffsetsRequest(
                    group=model.group, queues=[pb.Queue(topic=topic, queue_id=queue_id)]
                ),
                timeout=_TIMEOUT_S,
            )
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND and (may_lose or not topics[topic]):
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


def _number(model: Model, body: bytes) -> int:
    name, number, _ = body.split(b"/", 2)
    if name.decode() != model.name:
        raise Failure(f"a message of {name.decode()} in a queue of {model.name}")
    return int(number)
