"""A shared group: settings, positions, dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import shared_groups_pb2 as pb
from server.console.addresses import address
from server.console.visit import INT32_MAX, INT64_MAX, PAGE_ROWS, whole_of
from server.moments import moment_ms
from server.texts import span_ms, span_text
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from kvcq_client.pb.v1.kvcq_pb2 import ResetOffsetsRequest
    from server.console.visit import Visit


async def describe(visit: Visit, group: str, after: str, rows: int) -> pb.DescribeGroupResponse:
    return await visit.ask(
        "DescribeGroup",
        pb.DescribeGroupRequest(group=group, page_size=rows, page_token=after),
        pb.DescribeGroupResponse,
    )


def lag_of(queue: pb.SharedQueue) -> int:
    """Number of messages that are not done."""
    return queue.max_offset - queue.next_offset + queue.in_flight + queue.waiting_again


def shared_group(visit: Visit, name: str, found: pb.DescribeGroupResponse) -> web.StreamResponse:
    settings = found.settings
    return visit.html(
        "shared_group.html",
        name=name,
        settings=settings,
        # As the fields of the form take them; empty: no limit.
        given={
            "deliveries": settings.max_deliveries if settings.HasField("max_deliveries") else "",
            "invisible": span_text(settings.invisible_ms),
            "flight": settings.most_in_flight,
            "keep": span_text(settings.dead_letters_keep_ms),
            "backoff": " ".join(map(span_text, settings.backoff.delays_ms)),
        },
        queues=[(one, lag_of(one)) for one in found.queues],
        flight=sum(one.in_flight for one in found.queues),
        dead_letters=found.dead_letters,
        members=found.members,
        is_first=not visit.token("after"),
        following=found.next_page_token
        and address("/group", name=name, after=found.next_page_token),
    )


# --- actions of forms ----------------------------------------------------------------------


async def update(visit: Visit, form: Mapping[str, str]) -> str:
    name = form.get("name", "")
    settings = pb.SharedGroupSettings(
        invisible_ms=_span("invisible", form.get("invisible", "")),
        most_in_flight=whole_of("flight", form.get("flight", "").strip(), INT32_MAX),
        dead_letters_keep_ms=_span("keep", form.get("keep", "")),
        backoff=pb.Backoff(
            delays_ms=[_span("backoff", one) for one in form.get("backoff", "").split()]
        ),
    )
    if deliveries := form.get("deliveries", "").strip():
        settings.max_deliveries = whole_of("deliveries", deliveries, INT32_MAX)
    await _change(visit, name, settings)
    return address("/group", name=name, notice="groupChanged")


async def pause(visit: Visit, form: Mapping[str, str]) -> str:
    name = form.get("name", "")
    await _change(visit, name, pb.SharedGroupSettings(paused=True))
    return address("/group", name=name, notice="groupPaused")


async def resume(visit: Visit, form: Mapping[str, str]) -> str:
    name = form.get("name", "")
    await _change(visit, name, pb.SharedGroupSettings(paused=False))
    return address("/group", name=name, notice="groupResumed")


async def _change(visit: Visit, name: str, settings: pb.SharedGroupSettings) -> None:
    request = pb.UpdateGroupRequest(group=name, settings=settings)
    await visit.ask("UpdateGroup", request, pb.UpdateGroupResponse)


async def reset(visit: Visit, form: Mapping[str, str]) -> str:
    name = form.get("group", "").strip()
    request = pb.ResetGroupRequest(group=name, topic=form.get("topic", "").strip())
    set_where(visit, form, request)
    await visit.ask("ResetGroup", request, pb.ResetGroupResponse)
    return address("/group", name=name, notice="offsetsReset")


def set_where(
    visit: Visit, form: Mapping[str, str], request: pb.ResetGroupRequest | ResetOffsetsRequest
) -> None:
    """Parse an end of the queues, or a time. Raises InvalidArgumentError."""
    to = form.get("to", "").strip()
    if to == "earliest":
        request.earliest = True
    elif to == "latest":
        request.latest = True
    else:
        time_ms = moment_ms(to, visit.backend.now_ms())
        if time_ms is None or not 0 <= time_ms <= INT64_MAX:
            raise InvalidArgumentError(
                "to", "is not earliest, latest, or a time such as 2026-01-31T12:00 or -90m"
            )
        request.time_ms = time_ms


def _span(name: str, text: str) -> int:
    """Parse a duration in ms. Raises InvalidArgumentError."""
    found = span_ms(text.strip())
    if found is None or found > INT64_MAX:
        raise InvalidArgumentError(name, f"{text[:40]!r} is not a time such as 30s, 10m or 30d")
    return found


# --- dead letters --------------------------------------------------------------------------


async def dead_letters(visit: Visit) -> web.StreamResponse:
    group, after = visit.text("group"), visit.token("after")
    found = await visit.ask(
        "ListDeadLetters",
        pb.ListDeadLettersRequest(group=group, page_size=PAGE_ROWS, page_token=after),
        pb.ListDeadLettersResponse,
    )
    return visit.html(
        "dead_letters.html",
        group=group,
        topic=f"%DLQ%{group}",
        letters=found.letters,
        is_first=not after,
        following=found.next_page_token
        and address("/dead-letters", group=group, after=found.next_page_token),
    )


async def redrive(visit: Visit, form: Mapping[str, str]) -> str:
    group = form.get("group", "")
    request = pb.RedriveRequest(group=group, offsets=_offsets(form))
    done = await visit.ask("Redrive", request, pb.RedriveResponse)
    if done.redriven:
        return address("/dead-letters", group=group, notice="lettersRedriven")
    return address("/dead-letters", group=group, notice="nothingRedriven")


def _offsets(form: Mapping[str, str]) -> list[int]:
    """One offset; none means all."""
    text = form.get("offset", "")
    return [whole_of("offset", text, INT64_MAX)] if text else []
