"""Transactions on the server: joins calls into appends, and sends checks for undecided
transactions. Uses the store, threads and the wait for the disk."""

from server.transactions.checks import Checks, Listener
from server.transactions.writer import TransactionWriter

__all__ = ["Checks", "Listener", "TransactionWriter"]
