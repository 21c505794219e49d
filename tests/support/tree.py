"""What a directory holds: as one value, and as a copy of what is in use."""

from __future__ import annotations

import hashlib
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def tree_digest(root: Path) -> dict[str, str]:
    """Relative path of each file and directory below `root`, and the digest of its bytes."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        found[name] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    return found


def copy_open(
    root: Path, image: Path, ignore: Callable[[str, list[str]], set[str]] | None = None
) -> None:
    """Copy a store or a database that is open, as a process that is killed would leave it.

    Files and directories come and go meanwhile: what is gone when its turn comes was not needed any
    more.
    """
    try:
        shutil.copytree(
            root, image, ignore=ignore, copy_function=_copy_if_there, dirs_exist_ok=True
        )
    except shutil.Error as error:
        if any(Path(source).exists() for source, _, _ in error.args[0]):
            raise


def _copy_if_there(source: str, target: str) -> None:
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)
