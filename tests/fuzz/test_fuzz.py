"""Every method, called at random: declared statuses, the control data unchanged, memory bounded."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from server.process import private_bytes
from tests.fuzz.calls import CALLERS, Fuzz
from tests.fuzz.requests import METHODS, USERS
from tests.support.serving import serving
from tests.support.users import add_users

if TYPE_CHECKING:
    from pathlib import Path

CALLS = 10_000
GROWTH_BYTES = 300 << 20


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("seed", [1, 2])
async def test_calls_at_random_are_answered_as_declared(tmp_path: Path, seed: int) -> None:
    gc.collect()
    before = private_bytes()
    async with serving(tmp_path, store={"max_queue_count": 64}) as served:
        fuzz = Fuzz(served.channel, seed)
        await fuzz.prepare()
        await fuzz.run(CALLS)
        await fuzz.check_control()
    assert private_bytes() - before < GROWTH_BYTES
    answered = {method for method, _ in fuzz.statuses if not method.endswith(" within")}
    assert answered == {method.name for method in METHODS}
    _check_taken(fuzz, "QueryRoute")


@pytest.mark.slow
@pytest.mark.integration
async def test_users_of_all_kinds_are_answered_as_declared_and_none_sees_more(
    tmp_path: Path,
) -> None:
    add_users(tmp_path, USERS)
    async with serving(tmp_path, access=True, store={"max_queue_count": 64}) as served:
        fuzz = Fuzz(served.channel, 3, CALLERS)
        await fuzz.prepare()
        await fuzz.run(CALLS)
        await fuzz.check_control()
    refused = {status for _, status in fuzz.statuses}
    assert {"UNAUTHENTICATED", "PERMISSION_DENIED"} <= refused
    _check_taken(fuzz, "QueryRoute")


def _check_taken(fuzz: Fuzz, *within: str) -> None:
    taken = {method for method, status in fuzz.statuses if status == "OK"}
    assert len(taken) > len(METHODS) // 2, "most methods take some of it"
    assert {f"{name} within" for name in within} <= taken
