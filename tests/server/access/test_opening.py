"""server/access/opening.py, as a server uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.serving import serving
from tests.support.users import add_users

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("users", [True, False])
async def test_a_store_with_users_that_are_not_asked_for_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, users: bool
) -> None:
    if users:
        add_users(tmp_path, {})
    async with serving(tmp_path):
        pass
    assert ("everyone may do everything" in caplog.text) == users
