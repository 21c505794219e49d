"""Transactions: a message waits as a half until its producer commits it or rolls it back.

records.py defines a half's record, store/state/halves.py its row. Decisions are made under the
append lock, so each half has exactly one outcome. See store/docs/transactions.md.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from store.base import check_time_within, check_within
from store.errors import (
    AppendWouldWaitError,
    CorruptRecordError,
    InvalidArgumentError,
    StoreError,
    UnreadableTransactionError,
)
from store.format import (
    MAX_LIGHT_QUEUES,
    check_group,
    check_may_put,
    check_topic,
    prepare_all,
    unpack_record,
)
from store.held.deciding import (
    Begin,
    Beginning,
    Decide,
    Ending,
    Found,
    ReadAgainError,
    Turn,
    id_of,
    is_live,
)
from store.held.readable import read_each
from store.held.records import (
    Ready,
    check_may_wait,
    delivered,
    prepare_waiting,
    ready,
    waiting,
)
from store.held.transaction_ids import unpack_transaction_id
from store.puts import check_fit
from store.state import (
    HALVES_TOPIC,
    NEVER,
    HalfChecked,
    HalfEnd,
    HalfEnded,
    HalfTables,
    HalvesForgotten,
    new_nonce,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from store.log import StoreTimes
    from store.message import Message
    from store.puts import AppendPath, Step
    from store.reads import ReadPath
    from store.state import EndedHalf, Entry, HalvesCount, OpenHalf, Rows
    from store.topics import Topics

logger = logging.getLogger(__name__)

#: Least time until the first check, ms: most transactions are decided earlier.
FIRST_CHECK_MS = 6_000
#: Time between two checks, ms: a producer has this long to answer.
CHECK_EVERY_MS = 30_000
#: Least time for which the outcome of a transaction is remembered, ms.
REMEMBERED_MS = 600_000
#: Longest time until the first check that a producer may request, ms.
MOST_IMMUNITY_MS = 24 * 3_600_000
#: Most calls in one `decide`.
MOST_TOGETHER = 256
#: Bytes of bodies in one append. A commit counts as this much, because it is not read yet.
_MOST_BYTES = 4 << 20
_DECIDE_WEIGHT = 16 << 10
#: Longest body of a call that is decided at once, bytes.
_MOST_AT_ONCE_BYTES = 32 << 10
#: Most halves that are listed or looked up together.
MOST_LISTED = 1000
#: Most pages that one filtered `list` examines.
_PAGES_LISTED = 20
#: Attempts to decide: a half may be moved while it is read.
_TRIES = 8
_PAGES_FORGOTTEN = 200

GROUP = "PGROUP"
IS_TRANSACTION = "TRAN_MSG"


class Decided(NamedTuple):
    """The results of `decide`."""

    answers: list[str | StoreError]
    end_offset: int  # see MessageStore.is_durable


class Check(NamedTuple):
    """A transaction that was not decided in time: a producer of its group should be asked."""

    half: int
    transaction_id: str
    topic: str
    checks: int  # number of checks sent before
    due_ms: int  # when the check became due, ms since 1970
    message: Message  # what a commit puts


class Transaction(NamedTuple):
    """An open transaction, as listed."""

    transaction_id: str
    half: int
    group: str
    topic: str
    begun_ms: int
    checks: int
    next_check_ms: int | None  # ms since 1970; None: given up, an operator must decide


class Halves:
    """Begins, decides, lists and checks transactions.

    Thread: any. Locks: that of appends. Memory: that of the calls in progress.
    """

    def __init__(
        self,
        appends: AppendPath,
        topics: Topics,
        state: Rows,
        times: StoreTimes,
        reads: ReadPath,
    ) -> None:
        """`state`: at the dispatch point."""
        # Constant after construction.
        self._appends = appends
        self._topics = topics
        self._tables = HalfTables(state)
        self._now_ms = times.steady_ms
        self._reads = reads
        self._opened_ms = self._now_ms()
        #: Number of ended halves since the store was opened; may be read without a lock.
        self.ended = dict.fromkeys(HalfEnd, 0)
        self.checks = 0
        self.begun = 0
        # Guarded by the append lock: halves that ended since `forget` began; None: it does not run.
        self._ended_meanwhile: list[int] | None = None

    # --- deciding --------------------------------------------------------------------------

    def begin(self, message: Message, group: str, immunity_ms: int = 0) -> str:
        """Store the message as a half. Returns the id of its transaction, as durable as a put.

        `immunity_ms`: time until the first check. Raises InvalidArgumentError, UnknownTopicError,
        UnknownQueueError, TooManyTransactionsError, and what a put raises.
        """
        return self._one(Begin(message, group, immunity_ms))

    def end(self, transaction_id: str, *, commit: bool) -> None:
        """Commit the message, which puts it to its topic, or roll it back. As durable as a put on
        return.

        The same decision may be repeated for at least REMEMBERED_MS. Raises InvalidArgumentError,
        UnknownTransactionError, TransactionEndedError if it ended differently, and what a put
        raises.
        """
        self._one(Decide(transaction_id, commit))

    def _one(self, call: Begin | Decide) -> str:
        answers, end = self.decide([call])
        self._appends.wait_acknowledged(end)
        (answer,) = answers
        if isinstance(answer, StoreError):
            raise answer
        return answer

    def decide(self, calls: Sequence[Begin | Decide], *, at_once: bool = False) -> Decided:
        """Apply these calls, at most MOST_TOGETHER, in as few appends as their bodies allow. Each
        gets its own result. Raises what an append raises; the outcome is then unknown.

        `at_once` is for an event loop: raises AppendWouldWaitError, and changes nothing, if it
        would wait for another append or the disk, or take long.
        """
        self._appends.check_open()
        if at_once and (len(calls) > 1 or self._appends.log.lock.locked() or _is_long(calls[0])):
            raise AppendWouldWaitError("it takes long, or another append is in progress")
        assert len(calls) <= MOST_TOGETHER, f"{len(calls)} calls together"
        answers: list[str | StoreError] = []
        end = self._appends.log.appended_offset
        while len(answers) < len(calls):
            weight, count = 0, 0
            for call in calls[len(answers) :]:
                weight += len(call.message.body) if isinstance(call, Begin) else _DECIDE_WEIGHT
                if count and weight > _MOST_BYTES:
                    break
                count += 1
            some, end = self._decide(calls[len(answers) : len(answers) + count], at_once=at_once)
            answers += some
        return Decided(answers, end)

    def _decide(self, calls: Sequence[Begin | Decide], *, at_once: bool) -> Decided:
        """Apply these calls in one append."""
        taken = [self._prepared(call) for call in calls]
        tries = _TRIES
        while True:
            tries -= 1
            endings = [each for each in taken if isinstance(each, Ending)]
            messages = self._messages(endings, at_once=at_once)
            turn = Turn(
                *(self._topics, self._appends.config, taken, messages, self._now_ms()),
                reads_again=tries > 0,
            )

            def steps(turn: Turn = turn) -> Sequence[Step]:
                found = turn.steps(self._appends.log.appended_offset)
                for each in found:
                    self._note_ended(each.entries)
                return found

            try:
                end = self._appends.decide_steps(steps, wait=not at_once)
            except ReadAgainError:
                if at_once:
                    raise AppendWouldWaitError("the half is not dispatched yet") from None
                self._appends.wait_acknowledged(self._appends.log.appended_offset)
                continue
            for how in turn.ended:
                self.ended[how] += 1
            self.begun += turn.begun
            return Decided(turn.answers, end)

    def _prepared(self, call: Begin | Decide) -> Beginning | Ending | StoreError:
        try:
            if isinstance(call, Decide):
                named = unpack_transaction_id(call.transaction_id)
                return Ending(call, named)
            message, group, immunity_ms = call
            check_group(group)
            check_time_within("immunity_ms", immunity_ms, 0, MOST_IMMUNITY_MS)
            check_topic(message.topic)
            check_may_put(message.topic)
            check_may_wait(message, 0, "transaction")
            config = self._appends.config
            prepare_all([message], config.max_body_bytes, MAX_LIGHT_QUEUES)
            more = {GROUP: group, IS_TRANSACTION: "true"}
            half = waiting(HALVES_TOPIC, message, more)
            (prepared,) = prepare_waiting([half], config.max_body_bytes)
            check_fit([half], [prepared], self._appends.log.segment_bytes)
            check_ms = max(FIRST_CHECK_MS, immunity_ms)
            waits = Ready(half, prepared)
            return Beginning(message, waits, group, new_nonce(), check_ms)
        except StoreError as error:
            return error

    def _messages(self, endings: Sequence[Ending], *, at_once: bool) -> dict[int, Found]:
        """The messages to commit, without those that cannot be read now."""
        rows = (self._tables.open(each.named.half) for each in endings if each.call.commit)
        places = {row.place: row.half for row in rows if row is not None}
        if not places:
            return {}
        if at_once and any(self._reads.is_cold(HALVES_TOPIC, 0, place) for place in places):
            raise AppendWouldWaitError("the half is on the disk")
        records, lost = read_each(self._reads, HALVES_TOPIC, list(places))
        found: dict[int, Found] = {}
        for place, half in places.items():
            if place in records:
                try:
                    found[half] = Found(place, ready(records[place]))
                except (CorruptRecordError, InvalidArgumentError) as error:
                    found[half] = Found(place, UnreadableTransactionError(str(error)))
            elif place in lost:
                found[half] = Found(place, self._lost(place, lost[place]))
        return found

    def _lost(self, place: int, reason: str) -> StoreError | None:
        """The error for a record at this place that cannot be read; None if it left the log."""
        ((low, _),) = self._reads.bounds([(HALVES_TOPIC, 0)])
        return None if place < low else UnreadableTransactionError(reason)

    # --- what nobody decided ---------------------------------------------------------------

    def due(
        self, group: str, limit: int = MOST_TOGETHER, after: tuple[int, int] | None = None
    ) -> list[Check]:
        """Up to `limit` transactions whose check is due, the longest due first. `after`: only those
        behind this due time (ms) and half.

        Gives up transactions that were checked as often as the settings allow, and ends those whose
        topic or record is gone. Call `checked` after sending the checks. Raises what an append
        raises, CorruptRecordError, DamagedQueueError.
        """
        limit, ahead_ms = min(limit, MOST_TOGETHER), MOST_IMMUNITY_MS
        halves = self._tables.due(group, self._now_ms(), limit, after, ahead_ms)
        rows = [row for row in map(self._tables.open, halves) if row is not None]
        if not rows:
            return []
        records, lost = read_each(self._reads, HALVES_TOPIC, [row.place for row in rows])
        asked = self._appends.config.transaction_checks
        checks: list[Check] = []
        others: list[tuple[OpenHalf, bool]] = []
        for row in rows:
            if row.place in lost:
                why = self._lost(row.place, lost[row.place])
                if why is not None:
                    logger.error("transaction %s is kept, but not checked: %s", id_of(row), why)
                others.append((row, why is None))
            elif row.checks >= asked or not self._lives(row):
                others.append((row, False))
            elif row.place in records:  # otherwise not dispatched yet
                message = delivered(unpack_record(records[row.place], verify=False))
                check = Check(row.half, id_of(row), row.topic, row.checks, row.check_ms, message)
                checks.append(check)
        if others:
            self._end_or_give_up(others)
        return checks

    def _lives(self, row: OpenHalf) -> bool:
        begins = self._topics.begins_at(row.topic)
        return begins is not None and begins <= row.began_at

    def _end_or_give_up(self, rows: Sequence[tuple[OpenHalf, bool]]) -> None:
        ended: list[HalfEnd] = []

        def entries() -> Sequence[Entry]:
            tables, now_ms = HalfTables(self._topics.view), self._now_ms()
            made: list[Entry] = []
            ended.clear()
            for before, is_gone in rows:
                row = tables.open(before.half)
                if row is None or row.place != before.place:
                    continue
                if not is_live(row, self._topics.view.tables):
                    ended.append(HalfEnd.TOPIC_GONE)
                elif is_gone:
                    ended.append(HalfEnd.RECORD_GONE)
                else:
                    made.append(HalfChecked(row.half, row.checks, NEVER))
                    continue
                made.append(HalfEnded(row.half, now_ms, ended[-1]))
            self._note_ended(made)
            return made

        self._appends.wait_acknowledged(self._appends.decide(entries))
        for how in ended:
            self.ended[how] += 1

    def checked(self, halves: Sequence[int]) -> None:
        """Record that these checks were sent to a connected producer. The next check is due after
        CHECK_EVERY_MS. Raises what an append raises."""

        def entries() -> Sequence[Entry]:
            tables, now_ms = HalfTables(self._topics.view), self._now_ms()
            rows = [row for row in map(tables.open, halves) if row is not None]
            return [
                HalfChecked(row.half, row.checks + 1, now_ms + CHECK_EVERY_MS)
                for row in rows
                if row.check_ms <= now_ms or row.check_ms - now_ms > MOST_IMMUNITY_MS
            ]

        self._appends.wait_acknowledged(self._appends.decide(entries))
        self.checks += len(halves)

    def forget(self) -> None:
        """Forget outcomes older than REMEMBERED_MS, up to the first newer one. Raises what an
        append raises."""
        if not self._tables.ended_from(0, 1):
            return
        with self._appends.held():
            self._ended_meanwhile = []
            end = self._appends.log.appended_offset
        try:
            self._appends.wait_acknowledged(end)
            below = self._old_below()

            def entries() -> Sequence[Entry]:
                first = min([below, *(self._ended_meanwhile or ())])
                return [HalvesForgotten(first)] if first else []

            if below:
                self._appends.wait_acknowledged(self._appends.decide(entries))
        finally:
            self._ended_meanwhile = None

    def _note_ended(self, entries: Sequence[Entry]) -> None:
        """Note ended halves for `forget`. Must hold the append lock."""
        if self._ended_meanwhile is not None:
            self._ended_meanwhile += [each.half for each in entries if isinstance(each, HalfEnded)]

    def _old_below(self) -> int:
        """All dispatched ended halves below this one are old; 0 if none is."""
        now_ms, below, first = self._now_ms(), 0, 0

        def is_old(ended: EndedHalf) -> bool:
            # A time in the future is from an earlier process with a wrong clock.
            ended_ms = ended.ended_ms if ended.ended_ms <= now_ms else self._opened_ms
            return ended_ms <= now_ms - REMEMBERED_MS

        for _ in range(_PAGES_FORGOTTEN):
            page = self._tables.ended_from(first, MOST_LISTED)
            old = [half for half, ended in page if is_old(ended)]
            late = next((half for half, ended in page if not is_old(ended)), None)
            if late is not None:
                old = [half for half in old if half < late]
            if old:
                below = first = old[-1] + 1
            if late is not None or len(page) < MOST_LISTED:
                break
        return below

    # --- looking ---------------------------------------------------------------------------

    def list(
        self, after: int = -1, limit: int = MOST_LISTED, *, group: str = "", given_up: bool = False
    ) -> tuple[list[Transaction], int | None]:
        """Open transactions behind cursor `after`, and the next cursor; None after the last page.
        `group`: only of this group. `given_up`: only those given up.

        A page may be shorter than `limit`, or empty. Raises InvalidArgumentError.
        """
        check_within("limit", limit, 1, MOST_LISTED)
        self._appends.check_open()
        found: list[Transaction] = []
        for _ in range(_PAGES_LISTED if group or given_up else 1):
            rows = self._tables.open_from(max(0, after + 1), limit)
            for row in rows:
                after = row.half
                if group in ("", row.group) and (row.is_given_up or not given_up):
                    found.append(_listed(row))
                    if len(found) == limit:
                        return found, after
            if len(rows) < limit:
                return found, None
        return found, after

    def count(self, group: str = "") -> HalvesCount:
        """Number of open and given-up transactions of a group; "" for all groups."""
        return self._tables.count(group)

    def now_ms(self) -> int:
        """The store's time, ms since 1970."""
        return self._now_ms()

    def counts(self) -> Iterator[tuple[str, HalvesCount]]:
        """Groups with open transactions, by name, with their counts."""
        return self._tables.counts()

    def statistics(self) -> dict[str, float]:
        count = self._tables.count()
        first = self._tables.open_from(0, 1) if count.open else []
        age_ms = self._now_ms() - first[0].begun_ms if first else 0
        return {
            "store.transactions_open": count.open,
            "store.transactions_given_up": count.given_up,
            "store.transactions_oldest_s": max(0, age_ms) / 1000,
            "store.transactions_begun": self.begun,
            "store.transactions_committed": self.ended[HalfEnd.COMMITTED],
            "store.transactions_rolled_back": self.ended[HalfEnd.ROLLED_BACK],
            "store.transactions_lost": self.ended[HalfEnd.TOPIC_GONE]
            + self.ended[HalfEnd.RECORD_GONE],
            "store.transaction_checks_sent": self.checks,
        }


def _listed(row: OpenHalf) -> Transaction:
    return Transaction(
        id_of(row),
        row.half,
        row.group,
        row.topic,
        row.begun_ms,
        row.checks,
        None if row.is_given_up else row.check_ms,
    )


def _is_long(call: Begin | Decide) -> bool:
    return isinstance(call, Begin) and len(call.message.body) > _MOST_AT_ONCE_BYTES
