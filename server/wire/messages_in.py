"""Converts messages from the wire for the store, which validates their content.

Errors name the field as in the request, such as `messages[3].topic`.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import repeat
from typing import TYPE_CHECKING, TypeAlias, TypeVar
from urllib.parse import unquote

from server.wire.put_limits import SHORT_TAG
from store.errors import InvalidArgumentError
from store.format import LONGEST_NAME, SHARDING_KEY, pack_host
from store.message import FEW, Host, Message, PlainMessages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kvcq_client.pb.v1 import kvcq_pb2 as pb
    from server.wire.put_limits import Budget

T = TypeVar("T")
#: The queue of a message that names none, by topic and ordering key.
Choose: TypeAlias = "Callable[[str, str], int]"

_NOWHERE: Host = ("127.0.0.1", 0)


def message_in(
    message: pb.Message, born_host: Host, choose: Choose, budget: Budget, index: int | None = None
) -> Message:
    """The message for the store; `choose` returns a queue for one that names none.

    `index`: its index in the batch, for errors. Raises InvalidArgumentError; TooMuchError if it has
    more parts than the budget has left.
    """
    topic = message.topic
    tag = message.tag
    if len(tag) > SHORT_TAG:
        budget.tag(len(tag), "messages")
    # The hottest lines of a put. Emptiness is asked first, and a slice is taken before the tuple:
    # tuple() of protobuf's own containers takes several times as long as all the rest.
    keys, light_queues, properties = message.keys, message.light_queues, message.properties
    if keys or light_queues or properties:
        budget.parts(len(keys) + len(light_queues) + len(properties), "messages")
    has_queue = message.HasField("queue_id")
    own: dict[str, str] | None = dict(properties) if properties else None
    ordering_key = message.ordering_key
    if ordering_key:
        field = f"{'message' if index is None else f'messages[{index}]'}.ordering_key"
        check_ordering_key(field, ordering_key, has_queue=has_queue)
        if own is not None and SHARDING_KEY in own:
            raise InvalidArgumentError(field, f"{SHARDING_KEY} is also given as a property")
        own = {**(own or {}), SHARDING_KEY: ordering_key}
    elif own is not None:
        ordering_key = own.get(SHARDING_KEY, "")  # of a message that is copied
    fields = (
        topic,
        message.body,
        message.queue_id if has_queue else choose(topic, ordering_key),
        tag,
        tuple(keys[:]) if keys else (),
        tuple(light_queues[:]) if light_queues else (),
        own,
        message.flag,
        0,
        message.born_time_ms,
        born_host,
        0,
        0,
    )
    return tuple.__new__(Message, fields)


def check_ordering_key(field: str, ordering_key: str, *, has_queue: bool) -> None:
    """Raises InvalidArgumentError."""
    if has_queue:
        raise InvalidArgumentError(field, "cannot be combined with queue_id: give one of the two")
    if len(ordering_key) > LONGEST_NAME or not ordering_key.isprintable():
        raise InvalidArgumentError(field, f"is not up to {LONGEST_NAME} printable characters")


def batch_in(
    messages: Sequence[pb.Message], born_host: Host, choose: Choose, budget: Budget
) -> list[Message]:
    """All messages of a batch. Raises like `request_in`."""
    budget.messages(len(messages), "messages")
    return [
        message_in(message, born_host, choose, budget, index)
        for index, message in enumerate(messages)
    ]


def request_in(
    request: pb.PutBatchRequest, born_host: Host, choose: Choose, budget: Budget
) -> Sequence[Message]:
    """The messages of a batch in either form.

    Raises InvalidArgumentError, naming the field; TooMuchError if the budget is exceeded.
    """
    if not request.HasField("columns"):
        return batch_in(request.messages, born_host, choose, budget)
    if request.messages:
        raise InvalidArgumentError(
            "columns", "cannot be combined with messages: give one of the two"
        )
    return columns_in(request.columns, born_host, choose, budget)


def columns_in(
    columns: pb.MessageColumns, born_host: Host, choose: Choose, budget: Budget
) -> Sequence[Message]:
    """All messages of a batch in columns. Raises like `request_in`, naming the column."""
    count = len(columns.bodies)
    budget.messages(count, "columns.bodies")
    bodies = columns.bodies[:]
    topics = _topics_in(columns, count)
    ordering_keys: Sequence[str] = ()
    if columns.ordering_keys:
        ordering_keys = _ordering_keys_in(columns, count, budget)
    if columns.queue_ids:
        queue_ids = _column("queue_ids", columns.queue_ids, count)
        if -1 in queue_ids:
            queue_ids = [
                choose(topic, ordering_key) if queue_id == -1 else queue_id
                for topic, queue_id, ordering_key in zip(
                    topics, queue_ids, ordering_keys or repeat("", count), strict=True
                )
            ]
    elif ordering_keys:
        queue_ids = list(map(choose, topics, ordering_keys))
    else:
        queue_ids = [choose(topic, "") for topic in topics]
    born_times_ms: Sequence[int] = [0] * count
    if columns.born_times_ms:
        born_times_ms = _column("born_times_ms", columns.born_times_ms, count)
    if count >= FEW and not (columns.tags or columns.keys or columns.flags or ordering_keys):
        names: Sequence[str] = ()
        if columns.light_queues:
            names = _texts("light_queues", columns.light_queues, count, ",", budget)
        return PlainMessages(topics, bodies, queue_ids, born_times_ms, born_host, names)
    tags: Iterable[str] = repeat("")
    if columns.tags:
        tags = _column("tags", columns.tags, count)
        budget.tag(sum(map(len, tags)), "columns.tags")
    keys: Iterable[tuple[str, ...]] = repeat(())
    if columns.keys:
        keys = _split_column("keys", columns.keys, count, " ", budget)
    light_queues: Iterable[tuple[str, ...]] = repeat(())
    if columns.light_queues:
        light_queues = _split_column("light_queues", columns.light_queues, count, ",", budget)
    flags: Iterable[int] = repeat(0)
    if columns.flags:
        flags = _column("flags", columns.flags, count)
    new = tuple.__new__
    return [
        new(Message, fields)
        for fields in zip(
            topics,
            bodies,
            queue_ids,
            tags,
            keys,
            light_queues,
            [{SHARDING_KEY: key} if key else None for key in ordering_keys] or repeat(None),
            flags,
            repeat(0),
            born_times_ms,
            repeat(born_host),
            repeat(0),
            repeat(0),
        )
    ]


def _ordering_keys_in(columns: pb.MessageColumns, count: int, budget: Budget) -> Sequence[str]:
    ordering_keys = _column("ordering_keys", columns.ordering_keys, count)
    budget.parts(count, "columns.ordering_keys")
    queue_ids: Iterable[int] = repeat(-1, count)
    if columns.queue_ids:
        queue_ids = _column("queue_ids", columns.queue_ids, count)
    for index, (ordering_key, queue_id) in enumerate(zip(ordering_keys, queue_ids, strict=True)):
        if ordering_key:
            check_ordering_key(
                f"messages[{index}].ordering_key", ordering_key, has_queue=queue_id != -1
            )
    return ordering_keys


def _topics_in(columns: pb.MessageColumns, count: int) -> list[str]:
    if len(columns.topics) > count:
        raise InvalidArgumentError(
            "columns.topics", f"{len(columns.topics)} topics of {count} messages"
        )
    names = columns.topics[:]
    if not columns.topic_indexes:
        if len(names) != 1:
            raise InvalidArgumentError(
                "columns.topics", f"{len(names)} topics, but no topic_indexes"
            )
        return names * count
    indexes = _column("topic_indexes", columns.topic_indexes, count)
    if max(indexes) >= len(names):
        raise InvalidArgumentError(
            "columns.topic_indexes", f"{max(indexes)}, but there are {len(names)} topics"
        )
    return [names[index] for index in indexes]


def _column(name: str, values: Sequence[T], count: int) -> Sequence[T]:
    if len(values) != count:
        raise InvalidArgumentError(f"columns.{name}", f"{len(values)} values for {count} messages")
    return values[:]


def _split_column(
    name: str, values: Sequence[str], count: int, separator: str, budget: Budget
) -> list[tuple[str, ...]]:
    """Each text, split into its words."""
    texts = _texts(name, values, count, separator, budget)
    return [tuple(text.split(separator)) if text else () for text in texts]


def _texts(
    name: str, values: Sequence[str], count: int, separator: str, budget: Budget
) -> Sequence[str]:
    """Each text is a list of words."""
    texts = _column(name, values, count)
    budget.parts(sum([text.count(separator) + 1 for text in texts if text]), f"columns.{name}")
    return texts


@lru_cache(maxsize=4096)
def host_of_peer(peer: str) -> Host:
    """The caller's address, from gRPC's name for it: ipv4:…, ipv6:[…]:…, or unix:…"""
    family, _, rest = unquote(peer).partition(":")
    if family not in ("ipv4", "ipv6"):
        return _NOWHERE
    address, _, port = rest.rpartition(":")
    try:
        host = (address.strip("[]").partition("%")[0], int(port))
        pack_host(host)
    except (ValueError, InvalidArgumentError):
        return _NOWHERE
    return host
