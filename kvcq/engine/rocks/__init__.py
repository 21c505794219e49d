"""KvEngine on RocksDB. The only package that reads and writes through the binding.

What the binding does and the engine hides (each one has a test):

* The setter of an iterator's lower bound sets the upper one: a falling scan stops by itself.
* It reports write stalls and failures alike as a plain Exception: told apart by their text.
* An iterator that meets a damaged block ends as if there were no more rows: a scan asks for the
  status whenever rows end before the limit.
* A manual compaction drops its status: the count of background errors tells.
* `flush` takes one family even with atomic flush on, which would part the families. A checkpoint
  flushes all of them at one point and says whether that worked.
* The directory stays locked while any handle, iterator or batch is alive, also one that hangs on
  the traceback of a caught exception: frames here let go of theirs before they end.
* Each opening writes a file of the binding's own into the directory, also one for reading only:
  reading goes through a directory of links.
"""

from kvcq.engine.rocks.checksum import crc32c
from kvcq.engine.rocks.engine import RocksEngine
from kvcq.engine.rocks.expiry_filter import ExpiryFilter
from kvcq.engine.rocks.failures import damage_mark
from kvcq.engine.rocks.handing_over import hand_over
from kvcq.engine.rocks.opening import list_families
from kvcq.engine.rocks.options import DERIVED, ROCKETMQ, FamilyProfile, Profile, small_profile
from kvcq.engine.rocks.sst import SstFile, write_sst

__all__ = [
    "DERIVED",
    "ROCKETMQ",
    "ExpiryFilter",
    "FamilyProfile",
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
