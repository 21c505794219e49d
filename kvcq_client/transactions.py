"""Values of transactions: messages that are stored first, and delivered when they are committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kvcq_client.values import Message


class OpenTransaction(NamedTuple):
    """A transaction that was neither committed nor rolled back."""

    transaction_id: str
    group: str  # of producers; any of them may be asked for the outcome
    topic: str  # the destination of its message
    begun_ms: int  # ms since 1970, as all times here
    checks: int  # how often a producer was asked
    next_check_ms: int | None  # None: no longer checked, an operator must decide


class TransactionCheck(NamedTuple):
    """A check: the server asks for the outcome of an undecided transaction."""

    transaction_id: str
    message: Message  # as it was given, with its queue
    checks: int  # how often a producer was asked before
