"""The kinds of jobs there are on a store that is served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.jobs.compact import Compact

if TYPE_CHECKING:
    from server.jobs.kinds import Kind
    from store.message_store import MessageStore


def kinds_of(store: MessageStore) -> list[Kind]:
    """One of each, for this store."""
    return [Compact(store)]
