"""Where our packages are imported from, for a new Python process that has to find them too."""

from __future__ import annotations

import sys
from pathlib import Path


def import_root() -> Path:
    """The directory on the import path: a checkout, or the site-packages of an installation."""
    return Path(sys.modules[__name__.partition(".")[0]].__path__[0]).parent
