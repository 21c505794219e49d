"""What any page that leads a user has: commands that would be taken, Python that compiles, links
that lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest

from tests.docs.pages import PAGES, ROOT, blocks, commands, read
from tests.server.cli.test_next_commands import check_command


@pytest.fixture
def any_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths of the pages are not on this machine."""

    def convert(_path: click.Path, value: Any, *_: object) -> Path:  # noqa: ANN401 - as click's
        return Path(value)

    monkeypatch.setattr(click.Path, "convert", convert)


#: `kvcq` and its words in a line of a shell: behind variables or a pipe, before a redirection. What
#: stands in quotes is one word.
_OF_KVCQ = re.compile(
    r"""(?:^|\| )(?:[A-Z_]+=\S+ )*(kvcq (?:"[^"]*"|'[^']*'|[^"'])*?)(?= [<>|] | &$|$)"""
)


@pytest.mark.usefixtures("any_path")
@pytest.mark.parametrize("page", PAGES, ids=str)
def test_commands_would_be_taken(page: Path) -> None:
    for command in commands(read(page)):
        for found in _OF_KVCQ.findall(command):
            check_command(found)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_python_compiles(page: Path) -> None:
    for block in blocks(read(page), "python"):
        compile(block, str(page), "exec")


def _anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    here = ROOT / page
    for link in re.findall(r"\]\(([^)\s]+)\)", read(page)):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        there = here.parent / name if name else here
        assert there.exists(), link
        assert not anchor or anchor in _anchors(there), link
