"""Finished jobs, as a note of the store.

Written when a job starts and when it ends. If the process is killed, a job is left as running, and
the next reader knows that it is not.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from migration.jobs import JobState, JobView
from store.errors import StoreError, StoreFormatError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store.notes import Notes

logger = logging.getLogger(__name__)

_NAME = "jobs"
_CUT_OFF = "the server stopped before the job ended; the job can be started again"


def read_history(notes: Notes) -> list[JobView]:
    """Oldest first; empty if there is none, or it cannot be read, which is logged."""
    try:
        data = notes.get(_NAME)
        if data is None:
            return []
        found = [JobView.of_document(document) for document in json.loads(data)]
    except (StoreFormatError, ValueError, TypeError, KeyError) as error:
        logger.warning("cannot read the history of jobs, starting without it: %s", error)
        return []
    return [
        replace(each, state=JobState.FAILED, error=_CUT_OFF) if each.is_running else each
        for each in found
    ]


def write_history(notes: Notes, jobs: Iterable[JobView]) -> None:
    """Durable on return. Errors are logged, since no job depends on it."""
    data = json.dumps([each.document() for each in jobs], separators=(",", ":")).encode()
    try:
        notes.put(_NAME, data)
    except (StoreError, OSError) as error:
        logger.warning("cannot save the history of jobs: %s", error)
