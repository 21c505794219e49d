"""Prints groups of both kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from server.cli.terminal import (
    counted,
    document_of,
    duration,
    print_json,
    print_table,
    say,
    time_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcq_client import GroupMember, GroupOffset, GroupState, SharedGroup

_SETTINGS = (
    "max_deliveries invisible_ms most_in_flight in_order from_latest paused dead_letters_keep_ms "
    "backoff_ms"
)
_QUEUE = (
    "topic queue_id next_offset max_offset done_below in_flight waiting_again lag oldest_time_ms"
)
_MEMBER = "user address since_ms last_ms waiting in_flight"


class GroupRow(NamedTuple):
    """One row of a list of groups."""

    group: str
    kind: str
    queues: int
    lag: int
    in_flight: int
    dead_letters: int

    def document(self) -> dict[str, Any]:
        return document_of(self, " ".join(self._fields))

    def cells(self) -> Sequence[object]:
        return self


def row_of(name: str, state: GroupState, offsets: Sequence[GroupOffset]) -> GroupRow:
    if state.is_shared:
        queues = state.queues
        lag = sum(one.lag for one in queues)
        flight = sum(one.in_flight for one in queues)
        return GroupRow(name, "shared", len(queues), lag, flight, state.dead_letters)
    return GroupRow(name, "reader", len(offsets), sum(one.lag for one in offsets), 0, 0)


def print_offsets(name: str, offsets: Sequence[GroupOffset], *, as_json: bool) -> None:
    """Show a reader group."""
    if as_json:
        print_json(
            {
                "group": name,
                "kind": "reader",
                "queues": [
                    document_of(one, "topic queue_id offset min_offset max_offset lag")
                    for one in offsets
                ],
            }
        )
        return
    print_table(
        f"{name}: {counted(sum(one.lag for one in offsets), 'message')} behind",
        ("topic", "queue", "offset", "min offset", "max offset", "lag"),
        [
            (one.topic, one.queue_id, "-" if one.offset is None else one.offset, *one[3:])
            for one in offsets
        ],
    )


def print_shared(name: str, state: GroupState, *, as_json: bool, ended: int | None = None) -> None:
    """Show a shared group. `ended`: number of deliveries that a reset ended."""
    assert state.settings is not None, "it is shared"
    if as_json:
        document = {
            "group": name,
            "kind": "shared",
            "settings": document_of(state.settings, _SETTINGS),
            "queues": [document_of(one, _QUEUE) for one in state.queues],
            "deadLetters": state.dead_letters,
            "members": [document_of(one, _MEMBER) for one in state.members],
        }
        print_json(document if ended is None else {**document, "endedInFlight": ended})
        return
    if ended is None:
        _print_settings(state.settings)
    lag = counted(sum(one.lag for one in state.queues), "message")
    letters = counted(state.dead_letters, "dead letter")
    print_table(
        f"{name}: {lag} not done, {letters}",
        ("topic", "queue", "next", "end", "in flight", "again", "not done", "oldest"),
        [
            (
                one.topic,
                one.queue_id,
                one.next_offset,
                one.max_offset,
                one.in_flight,
                one.waiting_again,
                one.lag,
                "-" if one.oldest_time_ms is None else time_text(one.oldest_time_ms),
            )
            for one in state.queues
        ],
    )
    if ended is None:
        _print_members(state.members)
    else:
        say(f"{counted(ended, 'message')} in flight can no longer be acknowledged")


def _print_members(members: Sequence[GroupMember]) -> None:
    if not members:
        say("nobody receives")
        return
    rows = [
        (
            one.address,
            one.user or "-",
            time_text(one.since_ms),
            time_text(one.last_ms),
            one.waiting,
            one.in_flight,
        )
        for one in members
    ]
    print_table("members", ("address", "user", "since", "last call", "waiting", "in flight"), rows)


def print_settings(name: str, settings: SharedGroup, *, as_json: bool, said: str) -> None:
    if as_json:
        print_json({"group": name, "settings": document_of(settings, _SETTINGS)})
        return
    _print_settings(settings)
    say(f"{said} {name}")


def _print_settings(settings: SharedGroup) -> None:
    most = settings.max_deliveries
    backoff = ", ".join(_span(each) for each in settings.backoff_ms)
    rows = (
        ("state", "paused" if settings.paused else "delivers"),
        ("order", "by ordering key" if settings.in_order else "none"),
        ("begins with", "new messages" if settings.from_latest else "the oldest message"),
        ("deliveries before a dead letter", "no limit" if most is None else str(most)),
        ("invisible time", _span(settings.invisible_ms)),
        ("in flight of a queue, at most", f"{settings.most_in_flight:,}"),
        ("backoff", backoff or "none"),
        ("dead letters are kept", _span(settings.dead_letters_keep_ms)),
    )
    print_table("", ("setting", "value"), rows)


def _span(ms: int) -> str:
    return duration(ms / 1000)
