"""Hands open transactions over to a RocketMQ broker. Each is appended in the broker's form, in one
append with the entry that ends it here."""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, NamedTuple

from store.format import MAX_LIGHT_QUEUES, UNIQ_KEY, prepare_all, unpack_record
from store.held.deciding import is_live
from store.held.halves import GROUP, IS_TRANSACTION
from store.held.readable import read_each
from store.held.records import FIRST_PLACE, LIGHT_QUEUES, again
from store.metadata import KEEP_ALL
from store.puts import MOST_BODY_BYTES, Step
from store.state import HALVES_TOPIC, HalfEnd, HalfEnded, HalfTables, TopicsMade

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.format import Prepared
    from store.log import StoreTimes
    from store.message import Message
    from store.puts import AppendPath
    from store.reads import ReadPath
    from store.state import Entry, OpenHalf, Rows
    from store.topics import Topics

logger = logging.getLogger(__name__)

CHECKS = "TRANSACTION_CHECK_TIMES"
#: Most halves of one append.
_TOGETHER = 256
_MOST_BYTES = 4 << 20


class HandedBack(NamedTuple):
    """Counts of transactions that were handed over."""

    halves: int = 0  # the broker will check them
    given_up: int = 0  # put to the broker's topic of given-up transactions
    without_light: int = 0  # of both; lost their light queues, which a broker does not have
    lost: int = 0  # unreadable; not handed over


class HandBack:
    """Hands transactions over to a broker. Thread: one. Locks: the append lock."""

    def __init__(
        self, appends: AppendPath, topics: Topics, state: Rows, times: StoreTimes, reads: ReadPath
    ) -> None:
        """`state`: at the dispatch point."""
        # Constant after construction.
        self._appends = appends
        self._topics = topics
        self._tables = HalfTables(state)
        self._now_ms = times.steady_ms
        self._reads = reads

    def halves(self, topic: str, given_up_topic: str) -> HandedBack:
        """Append all open transactions as halves to these system topics, as durable as a put on
        return.

        May be repeated: each is handed over once. Raises what an append raises.
        """
        total = HandedBack()
        after = 0
        while rows := self._tables.open_from(after, _TOGETHER):
            some, taken = self._some(rows, topic, given_up_topic)
            total = HandedBack(*(one + two for one, two in zip(total, some, strict=True)))
            after = rows[taken - 1].half + 1
        return total

    def _some(
        self, rows: Sequence[OpenHalf], topic: str, given_up_topic: str
    ) -> tuple[HandedBack, int]:
        """Hand over the first of these rows. Returns counts, and the number of rows processed."""
        records, lost = read_each(self._reads, HALVES_TOPIC, [row.place for row in rows])
        ready: list[tuple[OpenHalf, Message, Prepared]] = []
        size = taken = without_light = 0
        for row in rows:
            record = records.get(row.place)
            if record is not None and size and size + len(record) > _MOST_BYTES:
                break
            taken += 1
            if record is None:
                logger.error("half %d cannot be handed back: %s", row.half, lost.get(row.place))
                continue
            size += len(record)
            was = unpack_record(record, verify=False)
            more = {GROUP: row.group, IS_TRANSACTION: "true"}
            if row.checks:
                more[CHECKS] = str(row.checks)
            if UNIQ_KEY not in was.properties:
                more[UNIQ_KEY] = secrets.token_hex(16).upper()
            to = given_up_topic if row.is_given_up else topic
            message = again(was, to, (FIRST_PLACE,), more)
            without_light += LIGHT_QUEUES in was.properties
            (prepared,) = prepare_all([message], MOST_BODY_BYTES, MAX_LIGHT_QUEUES, is_batch=True)
            ready.append((row, message, prepared))
        steps: list[Step] = []

        def decide() -> Sequence[Step]:
            steps.clear()
            view = self._topics.view
            tables, now_ms = HalfTables(view), self._now_ms()
            needed = {message.topic for _, message, _ in ready}
            made: list[Entry] = [
                TopicsMade([name], 1, now_ms, KEEP_ALL)
                for name in sorted(needed)
                if view.tables.topic(name) is None
            ]
            if made:
                steps.append(Step(made))
            entries: list[Entry] = []
            messages: list[Message] = []
            details: list[Prepared] = []
            for row, message, prepared in ready:
                if tables.open(row.half) != row:
                    continue
                if not is_live(row, view.tables):
                    entries.append(HalfEnded(row.half, now_ms, HalfEnd.TOPIC_GONE))
                    continue
                entries.append(HalfEnded(row.half, now_ms, HalfEnd.HANDED_BACK))
                messages.append(message)
                details.append(prepared)
            if entries:
                steps.append(Step(entries, messages, prepared=details))
            return steps

        if ready:
            self._appends.wait_acknowledged(self._appends.decide_steps(decide))
        given = [message for step in steps for message in step.messages]
        given_up = sum(message.topic == given_up_topic for message in given)
        return (
            HandedBack(len(given) - given_up, given_up, without_light, taken - len(ready)),
            taken,
        )
