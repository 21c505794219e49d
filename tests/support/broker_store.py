"""Stores that a RocketMQ broker wrote, with its `config/`, and what the broker finds in them.

How they were made: tests/golden/broker/README.md. `make interop` runs the tests on stores made a
moment before: it names their directory in the variable KVCQ_GOLDEN_BROKER.
"""

from __future__ import annotations

import functools
import json
import lzma
import os
from pathlib import Path
from typing import Any

from migration.state.state import FileLayout
from tests.support.unpacking import unpack

DIRECTORY = Path(
    os.environ.get("KVCQ_GOLDEN_BROKER") or Path(__file__).parent.parent / "golden" / "broker"
)

#: JSON files of a broker with light queues; a database for each table; one for all; its second
#: layout.
FORMS = ("lmq", "separate", "single", "v2")

# Settings that the bytes follow (kvcq.interop.broker.Broker, in Java).
SEGMENT_BYTES = 64 * 1024
LAYOUT = FileLayout(units_per_file=16, index_slots=101, index_entries=1000)


def extract_broker(tmp_path: Path, form: str) -> Path:
    """A fresh copy of the store `form` below `tmp_path`; returns its root."""
    unpack(DIRECTORY / f"{form}.tar.xz", tmp_path)
    return tmp_path / form


@functools.cache
def found_by_broker(form: str) -> dict[str, Any]:
    """What the broker finds. Shared between callers: look, do not change.

    `topics`: queue counts. `groups`: names. `offsets`: by `topic@group:queue id`. `bodies`: of
    the messages of each queue, by `topic:queue id`.
    """
    with lzma.open(DIRECTORY / f"{form}.expected.json.xz") as text:
        document: dict[str, Any] = json.load(text)
    return document
