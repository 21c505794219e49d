"""Compares the log with file queues and RocksDB: digests of all rows, then details of
differences."""

from migration.spark.verify.compare import VerifySettings, verify
from migration.spark.verify.result import VerifyResult

__all__ = ["VerifyResult", "VerifySettings", "verify"]
