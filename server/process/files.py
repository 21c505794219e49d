"""What a process that holds a store open sets up before it opens anything."""

from __future__ import annotations

import os
import resource

#: Taken from whatever creates a file, RocksDB as well: nothing for others, no writing by the group.
_PRIVATE = 0o027


def prepare_to_open_stores() -> None:
    """Do both of the following. Repeatable."""
    raise_descriptor_limit()
    make_new_files_private()


def raise_descriptor_limit() -> None:
    """Raise the limit of open descriptors to what the system allows this process."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def make_new_files_private() -> None:
    """New directories are at most 0750, new files 0640; a stricter umask stays."""
    os.umask(os.umask(_PRIVATE) | _PRIVATE)
