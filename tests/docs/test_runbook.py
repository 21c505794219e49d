"""docs/runbook.md: a section for each alert, with commands that would be taken."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from server.settings import KNOWN
from tests.deploy.test_prometheus import ALERTS
from tests.server.cli.test_next_commands import check_command

DOCS = Path(__file__).parents[2] / "docs"
_RUNBOOK = (DOCS / "runbook.md").read_text(encoding="utf-8")
_MONITORING = (DOCS / "monitoring.md").read_text(encoding="utf-8")
SECTIONS = {
    part.partition("\n")[0]: part.partition("\n")[2] for part in _RUNBOOK.split("\n## ")[1:]
}


def _commands(text: str) -> list[str]:
    """Lines of the blocks that a shell is given, without what is behind a sign of comment."""
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    lines = [line.partition(" #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


def test_there_is_a_section_for_each_alert_and_no_other() -> None:
    assert list(SECTIONS) == list(ALERTS), "in the order of the rules"


@pytest.mark.parametrize("alert", SECTIONS)
def test_a_section_says_what_it_means_and_what_can_be_typed(alert: str) -> None:
    text = SECTIONS[alert].strip()
    assert not text.startswith("```"), "first what it means"
    assert _commands(text)


@pytest.mark.parametrize("text", [_RUNBOOK, _MONITORING])
def test_commands_would_be_taken(text: str, tmp_path: Path) -> None:
    for line in _commands(text.replace("/var/lib/kvcq", str(tmp_path))):
        words = shlex.split(line)
        while "=" in words[0] and words[0].partition("=")[0].isupper():
            words.pop(0)
        if words[0] == "kvcq":
            check_command(shlex.join(words))


@pytest.mark.parametrize("text", [_RUNBOOK, _MONITORING])
def test_settings_and_alerts_that_are_named_are_there(text: str) -> None:
    named = set(re.findall(r"`((?:server|store)\.[a-z_]+)`", text))
    named |= set(re.findall(r"--set ((?:server|store)\.[a-z_]+)=", text))
    not_settings = {"store.some_number"}
    assert named - not_settings <= set(KNOWN)
    assert set(re.findall(r"\bKvcq[A-Z]\w+", text)) <= set(ALERTS)


@pytest.mark.parametrize("page", ["runbook.md", "monitoring.md"])
def test_links_lead_somewhere(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert (DOCS / link).exists(), link
