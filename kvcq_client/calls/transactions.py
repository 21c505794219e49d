"""Calls on transactions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kvcq_client.arguments import checked
from kvcq_client.calls.call_group import CallGroup
from kvcq_client.format import Checker, outgoing_of, write_to
from kvcq_client.pb.v1 import transactions_pb2 as pb
from kvcq_client.transactions import OpenTransaction
from kvcq_client.wire import from_wire

if TYPE_CHECKING:
    from kvcq_client.values import Message

_TRANSACTIONS_A_CALL = 1000

_check = partial(Checker().check, strict=True)


@checked()
class TransactionCalls(CallGroup):
    """Begins transactions, decides them, and lists those that are open."""

    async def begin_transaction(
        self,
        message: Message,
        *,
        group: str,
        immunity_s: float = 0.0,
        timeout_s: float | None = None,
    ) -> str:
        """Store a message that is not delivered before it is committed. Returns the id of its
        transaction. `client.transaction` begins, commits and rolls back.

        `group`: of producers. If the transaction is not decided, the server asks one that answers
        checks for the group (see `answer_checks`), after 6 s or after `immunity_s`, whichever is
        longer. The message is sent once: after UnavailableError or DeadlineError without a reason
        it may be stored, and the server asks about it. Raises NotFoundError, ResourceExhaustedError
        if too many are open or the disk is full.
        """
        request = pb.BeginTransactionRequest(group=group, immunity_ms=round(immunity_s * 1000))
        write_to(request.message, _check(outgoing_of(message))[0])
        answer = await self._call(
            self._transactions.BeginTransaction, request, timeout_s, may_repeat=False
        )
        return str(answer.transaction_id)

    async def commit_transaction(
        self, transaction_id: str, *, timeout_s: float | None = None
    ) -> None:
        """Deliver the message of the transaction. Repeatable: it is delivered once.

        Raises NotPossibleError with reason TRANSACTION_ENDED if it was rolled back, or its topic
        was deleted; NotFoundError if it does not exist, or was decided more than ten minutes ago.
        """
        request = pb.DecideTransactionRequest(transaction_id=transaction_id, commit=True)
        await self._call(self._transactions.DecideTransaction, request, timeout_s)

    async def roll_back_transaction(
        self, transaction_id: str, *, timeout_s: float | None = None
    ) -> None:
        """Drop the message of the transaction. Repeatable.

        Raises NotPossibleError with reason TRANSACTION_ENDED if it was committed; NotFoundError if
        it does not exist, or was decided more than ten minutes ago.
        """
        request = pb.DecideTransactionRequest(transaction_id=transaction_id, commit=False)
        await self._call(self._transactions.DecideTransaction, request, timeout_s)

    async def open_transactions(
        self,
        group: str = "",
        *,
        given_up: bool = False,
        max_transactions: int | None = None,
        timeout_s: float | None = None,
    ) -> list[OpenTransaction]:
        """Open transactions, of a group or of all, oldest first.

        `given_up`: only those that the server no longer asks about.
        """
        most = _TRANSACTIONS_A_CALL
        if max_transactions is not None and not (group or given_up):
            most = max(1, min(max_transactions, most))
        request = pb.ListTransactionsRequest(group=group, given_up=given_up, page_size=most)
        found: list[OpenTransaction] = []
        while True:
            page = await self._call(self._transactions.ListTransactions, request, timeout_s)
            found += [from_wire(OpenTransaction, one) for one in page.transactions]
            request.page_token = page.next_page_token
            if not page.next_page_token or (
                max_transactions is not None and len(found) >= max_transactions
            ):
                return found[:max_transactions]
