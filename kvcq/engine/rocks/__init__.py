"""KvEngine on RocksDB. The only package that uses the binding.

Peculiarities of the binding that the engine hides (each one has a test):

* The setter of an iterator's lower bound sets the upper one, so a descending scan checks its lower
  bound itself.
* Write stalls and failures are both a plain Exception; their text distinguishes them.
* An iterator that reaches a damaged block ends as if there were no more rows, so a scan checks the
  status whenever rows end before the limit.
* A manual compaction drops its status, so the count of background errors is checked.
* `flush` flushes one family even with atomic flush on, which would separate the families. A
  checkpoint flushes all of them at one point and reports whether that worked.
* The directory stays locked while any handle, iterator or batch is alive, including one in the
  traceback of a caught exception, so frames here release theirs before they end.
* Each opening writes a file of the binding's own into the directory, even a read-only one, so
  read-only access goes through a directory of links.
"""

from kvcq.engine.rocks.checksum import crc32c
from kvcq.engine.rocks.engine import RocksEngine
from kvcq.engine.rocks.expiry_filter import ExpiryFilter
from kvcq.engine.rocks.failures import damage_mark
from kvcq.engine.rocks.handing_over import hand_over
from kvcq.engine.rocks.opening import list_families
from kvcq.engine.rocks.options import DERIVED, ROCKETMQ, Profile, small_profile
from kvcq.engine.rocks.sst import SstFile, write_sst

__all__ = [
    "DERIVED",
    "ROCKETMQ",
    "ExpiryFilter",
    "Profile",
    "RocksEngine",
    "SstFile",
    "crc32c",
    "damage_mark",
    "hand_over",
    "list_families",
    "small_profile",
    "write_sst",
]
