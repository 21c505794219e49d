"""Fixtures that the tests of a backup's log share with those of backups."""

from tests.support.backups import clock, store
from tests.support.s3 import bucket_server

__all__ = ["bucket_server", "clock", "store"]
