"""docs/runbook.md: a section for each alert, with commands that would be taken."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from server.settings import KNOWN
from tests.deploy.test_prometheus import ALERTS
from tests.docs.pages import commands

DOCS = Path(__file__).parents[2] / "docs"
_RUNBOOK = (DOCS / "runbook.md").read_text(encoding="utf-8")
_MONITORING = (DOCS / "monitoring.md").read_text(encoding="utf-8")
SECTIONS = {
    part.partition("\n")[0]: part.partition("\n")[2] for part in _RUNBOOK.split("\n## ")[1:]
}


def test_there_is_a_section_for_each_alert_and_no_other() -> None:
    assert list(SECTIONS) == list(ALERTS), "in the order of the rules"


@pytest.mark.parametrize("alert", SECTIONS)
def test_a_section_says_what_it_means_and_what_can_be_typed(alert: str) -> None:
    text = SECTIONS[alert].strip()
    assert not text.startswith("```"), "first what it means"
    assert commands(text)


@pytest.mark.parametrize("text", [_RUNBOOK, _MONITORING])
def test_settings_and_alerts_that_are_named_are_there(text: str) -> None:
    named = set(re.findall(r"`((?:server|store)\.[a-z_]+)`", text))
    named |= set(re.findall(r"--set ((?:server|store)\.[a-z_]+)=", text))
    not_settings = {"store.some_number"}
    assert named - not_settings <= set(KNOWN)
    assert set(re.findall(r"\bKvcq[A-Z]\w+", text)) <= set(ALERTS)
