"""Bars on a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from server.cli.terminal import Bars, bars


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    found = io.StringIO()
    monkeypatch.setenv("TERM", "xterm")  # a dumb one shows no bars
    monkeypatch.setattr(bars, "notes", Console(file=found, force_terminal=True, width=80))
    return found


def test_each_step_has_a_bar_also_after_a_rest(screen: io.StringIO) -> None:
    with Bars() as shown:
        shown.show("read [x]", 0.25)
        shown.show("write", None)
        shown.rest()
        assert "read [x]" in screen.getvalue()
        assert "write" in screen.getvalue()
        screen.truncate(0)
        shown.show("write", 1.0)
    assert "100%" in screen.getvalue()
    assert "read" not in screen.getvalue()


def test_a_quiet_one_shows_nothing(screen: io.StringIO) -> None:
    with Bars(quiet=True) as shown:
        shown.show("read", 0.5)
    assert screen.getvalue() == ""
