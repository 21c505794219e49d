"""The log against file queues and RocksDB: digests of all rows, then a look at what differs."""

from migration.spark.verify.compare import VerifySettings, verify
from migration.spark.verify.result import VerifyResult

__all__ = ["VerifyResult", "VerifySettings", "verify"]
