"""server/rocketmq/renewals.py: a push consumer's messages are its own as long as it lives."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from server.rocketmq.clients import SILENT_S, Clients
from server.rocketmq.pb import values_pb2 as v2
from server.rocketmq.renewals import LONGEST_S, Renewals
from server.rocketmq.statuses import OK
from server.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

CLIENT = ("", "client")


class Settled:
    """What is asked of the store, instead of it."""

    def __init__(self) -> None:
        self.held: list[str] = []
        self.back: list[str] = []

    async def hold_on(self, group: str, handles: Sequence[str], hold_ms: int) -> list[v2.Status]:
        self.held += handles
        await asyncio.sleep(0)  # as the store, which is never done at once
        return [OK] * len(handles)

    async def give_back(
        self, group: str, handles: Sequence[str], delay_ms: int, *, not_begun: bool
    ) -> list[v2.Status]:
        assert not not_begun, "the client received them"
        self.back += handles
        return [OK] * len(handles)

    @staticmethod
    def is_done(status: v2.Status) -> bool:
        return status is OK


class Setting:
    """Renewals with a clock of their own."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.settled = Settled()
        self.clients = Clients(lambda: self.now_s)
        self.stage = Stage()
        self.renewals = Renewals(
            self.settled,  # type: ignore[arg-type]
            self.clients,
            self.stage,
            lambda: self.now_s,
        )
        self.clients.note_active(CLIENT)
        self.renewals.begin(CLIENT, "g", ["h1", "h2"])

    async def after(self, seconds: float, *, beats: bool = True) -> None:
        self.now_s += seconds
        if beats:
            self.clients.note_active(CLIENT)
        await self.renewals.look()

    def end(self) -> None:
        self.stage.drain()


async def test_they_are_held_on_to_until_they_are_settled() -> None:
    setting = Setting()
    await setting.after(5)
    assert setting.settled.held == []
    await setting.after(31)
    assert setting.settled.held == ["h1", "h2"]
    setting.renewals.end("g", ["h1"])
    await setting.after(36)
    assert setting.settled.held == ["h1", "h2", "h2"]
    setting.renewals.end("g", ["h2"])
    await setting.after(1000)
    assert (setting.settled.held, setting.settled.back) == (["h1", "h2", "h2"], [])
    assert len(setting.renewals) == 0
    setting.end()


async def test_nothing_is_asked_again_for_messages_of_which_the_handle_came_too_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setting = Setting()
    asked: list[str] = []

    async def hold_on(group: str, handles: Sequence[str], hold_ms: int) -> list[v2.Status]:
        asked.append(group)
        return [v2.Status(code=v2.INVALID_RECEIPT_HANDLE)] * len(handles)

    monkeypatch.setattr(setting.settled, "hold_on", hold_on)
    for _ in range(3):
        await setting.after(36)
    assert asked == ["g"]
    assert len(setting.renewals) == 0
    setting.end()


async def test_they_are_given_back_when_the_client_is_silent() -> None:
    setting = Setting()
    await setting.after(SILENT_S + 1, beats=False)
    assert (setting.settled.held, setting.settled.back) == ([], ["h1", "h2"])
    assert len(setting.renewals) == 0
    setting.end()


async def test_they_are_given_back_when_the_client_says_that_it_ends() -> None:
    setting = Setting()
    setting.renewals.begin(("", "other"), "g", ["h3"])
    setting.renewals.give_back(CLIENT)
    for task in tuple(setting.renewals._giving_back):
        await task
    assert setting.settled.back == ["h1", "h2"]
    assert len(setting.renewals) == 1
    setting.end()


async def test_thousands_of_clients_do_not_hold_the_loop_when_one_ends_or_all_are_due() -> None:
    setting = Setting()
    others = [_Other(("", f"{number}")) for number in range(1000)]
    for other in others:
        setting.clients.note_active(other)
        setting.renewals.begin(other, "g", [f"{other[1]}-{n}" for n in range(32)])
    _Other.compared = 0
    setting.renewals.give_back(CLIENT)
    assert _Other.compared < 10
    for task in tuple(setting.renewals._giving_back):
        await task
    assert setting.settled.back == ["h1", "h2"]
    setting.now_s += 36
    most = seen = 0
    looking = asyncio.create_task(setting.renewals.look())
    while not looking.done():
        await asyncio.sleep(0)
        most, seen = max(most, _Other.compared - seen), _Other.compared
    looking.result()
    assert len(setting.settled.held) == 32_000
    assert most <= 2 * 4096
    setting.end()


class _Other(tuple[str, str]):
    """A client that counts how often it is looked for."""

    __slots__ = ()
    compared = 0

    def __hash__(self) -> int:
        _Other.compared += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        _Other.compared += 1
        return super().__eq__(other)


async def test_nothing_is_held_on_to_for_ever() -> None:
    setting = Setting()
    for _ in range(int(LONGEST_S // 36) + 2):
        await setting.after(36)
    assert setting.settled.back == ["h1", "h2"]
    setting.end()


async def test_clients_that_nobody_hears_of_are_forgotten() -> None:
    now_s = 0.0
    clients = Clients(lambda: now_s, most=3)
    for number in range(10):
        clients.note_active(("", f"{number}"))
    assert len(clients) == 3
    assert not clients.is_alive(("", "6"))
    assert clients.is_alive(("", "9"))
    now_s = SILENT_S
    assert not clients.is_alive(("", "9"))
