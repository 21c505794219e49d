"""Transactions as blocks of code, and answers to the server's question what became of one."""

from kvcq_client.transacting.checks import (
    Answer,
    AsyncTransactionChecks,
    Check,
    ChecksCore,
    TransactionChecks,
)
from kvcq_client.transacting.transaction import AsyncTransaction, Transaction

__all__ = [
    "Answer",
    "AsyncTransaction",
    "AsyncTransactionChecks",
    "Check",
    "ChecksCore",
    "Transaction",
    "TransactionChecks",
]
