"""kvcq consume --group: print messages of a shared group, and acknowledge them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kvcq_client import KvcqError, Outcome, UnavailableError
from server.cli.terminal import say

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcq_client import Client, StoredMessage

#: Messages that are printed and acknowledged together.
_A_BATCH = 32
#: Longest wait of a call for messages, seconds.
_WAIT_S = 20.0


def consume_shared(
    client: Client,
    group: str,
    topic: str,
    show: Callable[[list[StoredMessage]], None],
    *,
    limit: int | None,
    follow: bool,
    tag_filter: str,
    sql_filter: str,
) -> int:
    """Receive, print and acknowledge until no message is available, or forever with `follow`.
    Returns how many were printed.

    Messages that could not be printed are given back. Raises KvcqError, and what `show` raises.
    """
    count = 0
    is_away = False
    while limit is None or count < limit:
        try:
            received = client.receive(
                topic,
                group=group,
                max_messages=_A_BATCH if limit is None else min(_A_BATCH, limit - count),
                wait_s=_WAIT_S if follow else 0.0,
                tag_filter=tag_filter,
                sql_filter=sql_filter,
            )
        except UnavailableError:
            if not follow:
                raise
            if not is_away:
                say(f"the server at {client.target} is unavailable, retrying")
            is_away = True
            continue
        if is_away:
            say(f"the server at {client.target} is back")
            is_away = False
        if not received and not follow:
            break
        try:
            show([one.message for one in received])
        except BaseException:
            with suppress(KvcqError):  # then they are redelivered when their lease ends
                client.give_back(group, received, 0.0)
            raise
        outcomes = client.acknowledge(group, received)
        if late := outcomes.count(Outcome.NOT_IN_FLIGHT):
            say(f"{late} messages were printed too late, and are printed by another member as well")
        count += len(received)
    return count
