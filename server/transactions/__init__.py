"""Transactions while the server runs: what calls decide together, and who is asked what became of
one that nobody decided. Uses the store, threads and the wait for the disk."""

from server.transactions.checks import Checks, Listener
from server.transactions.writer import TransactionWriter

__all__ = ["Checks", "Listener", "TransactionWriter"]
