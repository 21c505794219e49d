"""Fixtures that tests of backups share."""

from tests.support.backups import clock, store
from tests.support.s3 import bucket_server

__all__ = ["bucket_server", "clock", "store"]
