"""The broker's own setting for a full disk is read, kept and gone by, unless the operator says."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from migration.broker_config import reclaims_unexpired
from migration.state.state import FileLayout, read_state
from migration.steps.adopting import adopt
from store.errors import StoreFormatError
from tests.support.golden_store import (
    INDEX_ENTRIES,
    INDEX_SLOTS,
    SEGMENT_BYTES,
    UNITS_PER_FILE,
    extract_golden,
)
from tests.support.migrating import config, open_store

if TYPE_CHECKING:
    from pathlib import Path

LAYOUT = FileLayout(UNITS_PER_FILE, INDEX_SLOTS, INDEX_ENTRIES)


@pytest.mark.parametrize(
    ("text", "reclaims"),
    [
        ("", True),
        ("brokerName=a\ndeleteWhen=04\n", True),
        ("cleanFileForciblyEnable=false\n", False),
        ("  cleanFileForciblyEnable : FALSE  \r\n", False),
        ("cleanFileForciblyEnable false", False),
        ("cleanFileForciblyEnable=true\n", True),
        ("# cleanFileForciblyEnable=false\n", True),
        ("cleanFileForciblyEnabled=false\n", True),
        ("cleanFileForciblyEnable=true\ncleanFileForciblyEnable=false\n", False),
    ],
)
def test_a_broker_reclaims_unless_its_settings_say_otherwise(
    tmp_path: Path, text: str, reclaims: bool
) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(text)
    assert reclaims_unexpired(path) is reclaims


def test_a_setting_that_is_neither_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("cleanFileForciblyEnable=perhaps\n")
    with pytest.raises(StoreFormatError, match="'perhaps'"):
        reclaims_unexpired(path)


@pytest.mark.parametrize("broker", [None, True, False])
def test_a_store_that_was_taken_over_keeps_what_its_broker_did(
    tmp_path: Path, broker: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = extract_golden(tmp_path, "both")

    def fail(*_: object) -> None:
        raise OSError("killed here")

    with monkeypatch.context() as patched:
        patched.setattr("migration.steps.adopting.make_state", fail)
        with pytest.raises(OSError, match="killed"):
            adopt(root, layout=LAYOUT, reclaim_unexpired=broker)
    told: list[str] = []
    adopt(root, layout=LAYOUT, tell=told.append)
    assert any("reclaim_unexpired" in line for line in told) is (broker is None)
    state = read_state(root)
    assert state is not None
    assert state.reclaim_unexpired is broker
    with open_store(config(root, segment_bytes=SEGMENT_BYTES)) as store:
        assert store.config.reclaim_unexpired is broker
    with open_store(
        replace(config(root, segment_bytes=SEGMENT_BYTES), reclaim_unexpired=False)
    ) as store:
        assert store.config.reclaim_unexpired is False
