"""Messages of all kinds that our store takes, from a seed, for RocketMQ to read."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from store.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPICS = ("orders", "payments", "a", "AaTopic", "BBTopic", "%RETRY%" + "group-" * 24, "%DLQ%old")
_TAGS = ("", "", "paid", "Aa", "BB", "标签😀")
_KEYS = ("Aa", "BB", "AaAa", "BBBB", "AaBB", "ключ", "😀", *(f"key-{n}" for n in range(30)))
_LIGHT = tuple(f"%LMQ%{name}" for name in ("device-1", "device-2", "Aa", "BB", "room" * 20))
_TRANSACTIONS = (0, 0, 0, 0, 0, 0, 0x4, 0x8, 0xC)
QUEUES = 4


def batches(seed: int, count: int) -> Iterator[list[Message]]:
    """About `count` messages, in puts of one to twelve; of a transaction, each in its own."""
    chance = random.Random(seed)  # reproducible, not secret
    made = 0
    while made < count:
        size = 1 if chance.random() < 0.5 else chance.randrange(2, 13)
        messages = [_message(chance, made + i) for i in range(size)]
        yield from ([each] for each in messages if each.sys_flag)
        if plain := [each for each in messages if not each.sys_flag]:
            yield plain
        made += size


def _message(chance: random.Random, number: int) -> Message:
    topic = chance.choice(TOPICS)
    transaction = chance.choice(_TRANSACTIONS)
    light: tuple[str, ...] = ()
    if not transaction and not topic.startswith("%") and chance.random() < 0.3:
        light = tuple(name for name in _LIGHT if chance.random() < 0.4)
    properties = {"n": str(number), "text": f"grün=\x01{number % 9}"} if number % 2 else {}
    if number % 6:
        properties["UNIQ_KEY"] = f"0A0000010D2A{number:020X}"
    return Message(
        topic=topic,
        body=_body(chance),
        queue_id=chance.randrange(QUEUES),
        tag=chance.choice(_TAGS),
        keys=tuple(chance.sample(_KEYS, chance.randrange(4))),
        light_queues=light,
        properties=properties,
        flag=chance.randrange(-(1 << 31), 1 << 31) if number % 5 == 0 else 0,
        sys_flag=transaction | (0x301 if number % 11 == 0 else 0),  # compressed, with zlib
        born_time_ms=1_700_000_000_000 + number,
        born_host=(
            (f"fd00::{number:x}", number) if number % 4 == 0 else (f"10.0.1.{number % 256}", number)
        ),
        reconsume_times=number % 17 if number % 10 == 0 else 0,
        prepared_transaction_offset=number if transaction == 0x8 else 0,
    )


def _body(chance: random.Random) -> bytes:
    words = chance.randrange(2500) if chance.random() < 0.04 else chance.randrange(60)
    return " ".join(f"w{chance.randrange(50)}" for _ in range(words)).encode()
