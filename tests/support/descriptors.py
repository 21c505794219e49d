"""A process that has no file descriptor left, for a while."""

from __future__ import annotations

import errno
import gc
import os
import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """None can be opened meanwhile, by anybody in this process."""
    gc.collect()
    gc.disable()  # it would close what was forgotten, and one were left
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(taken[0] + 1, 3), limits[1]))
    try:
        while True:
            try:
                taken.append(os.dup(taken[0]))
            except OSError as error:
                if error.errno != errno.EMFILE:
                    raise
                break
        yield
    finally:
        gc.enable()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in taken:
            os.close(descriptor)
