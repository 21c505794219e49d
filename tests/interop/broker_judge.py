"""Runs the released RocketMQ broker, which writes and reads `config/` in each of its forms.

The stores that it writes are kept in tests/golden/broker: `python -m tests.interop.broker_judge`
makes them anew.
"""

from __future__ import annotations

import json
import lzma
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.interop.make_golden import pack
from tests.interop.maven import build
from tests.support import broker_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from migration.state import FileLayout

PROJECT = Path(__file__).parent / "broker"

#: A run takes about twenty seconds: the broker waits at its start and at its end.
TIMEOUT_S = 300


class BrokerJudge:
    """The compiled program. Building it needs a JDK, Maven and the network, the first time."""

    def __init__(self) -> None:
        self._classpath = build(PROJECT)

    def write(self, form: str, root: Path) -> None:
        """A new store in `root`, with its configuration in one of `broker_store.FORMS`."""
        self._run("write", form, str(root))

    def read(
        self, form: str, root: Path, layout: FileLayout = broker_store.LAYOUT
    ) -> dict[str, Any]:
        """What a broker finds in `root`: topics, groups, offsets, bodies. Works on a copy.

        `form`: one of `broker_store.FORMS`, or "files", a broker without light queues.
        """
        with tempfile.TemporaryDirectory() as scratch:
            copy = Path(scratch) / "store"
            shutil.copytree(root, copy)
            answer = Path(scratch) / "answer.json"
            flags = [
                f"-DunitsPerFile={layout.units_per_file}",
                f"-DindexSlots={layout.index_slots}",
                f"-DindexEntries={layout.index_entries}",
            ]
            self._run("read", form, str(copy), str(answer), flags=flags)
            document: dict[str, Any] = json.loads(answer.read_bytes())
            return document

    def wait(self, root: Path) -> None:
        """A new store in `root`, whose broker was stopped while messages waited."""
        self._run("wait", str(root))

    def deliver(self, root: Path, seconds: int) -> dict[str, list[str]]:
        """A broker runs on `root` for so long: the `bodies` that it has in their topic then, and of
        halves that it has `asked` about."""
        with tempfile.TemporaryDirectory() as scratch:
            answer = Path(scratch) / "answer.json"
            self._run("deliver", str(root), str(seconds), str(answer))
            document: dict[str, list[str]] = json.loads(answer.read_bytes())
            return document

    def _run(self, *arguments: str, flags: Sequence[str] = ()) -> None:
        with tempfile.TemporaryDirectory() as home:
            command = ["java", "-Xmx1g", f"-Duser.home={home}", *flags]  # its logs go home
            command += ["-cp", self._classpath, "kvcq.interop.broker.Main", *arguments]
            done = subprocess.run(
                command, check=False, timeout=TIMEOUT_S, capture_output=True, text=True
            )
        if done.returncode != 0:
            complaint = done.stderr[-4000:]
            raise RuntimeError(f"{' '.join(arguments)} ended with {done.returncode}:\n{complaint}")


def make_golden(judge: BrokerJudge, directory: Path) -> None:
    """Write a store of each form, and what the broker then finds in it, to `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for form in broker_store.FORMS:
            root = Path(scratch) / form
            judge.write(form, root)
            pack(root, directory / f"{form}.tar.xz")
            text = json.dumps(judge.read(form, root), ensure_ascii=False, separators=(",", ":"))
            (directory / f"{form}.expected.json.xz").write_bytes(lzma.compress(text.encode()))


if __name__ == "__main__":
    make_golden(BrokerJudge(), broker_store.DIRECTORY)
