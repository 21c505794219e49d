"""What a directory holds, as one value: to show that reading left it alone."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def tree_digest(root: Path) -> dict[str, str]:
    """Relative path of each file and directory below `root`, and the digest of its bytes."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        found[name] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    return found
