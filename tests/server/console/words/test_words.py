"""Both catalogues are complete, fill in the same values, and every text is used."""

from __future__ import annotations

import re
from pathlib import Path
from string import Formatter

import pytest

import server.console
from kvcq_client import TraceEventKind, TraceGroupState
from server.console import PAGES
from server.console.pages.jobs import kinds
from server.console.pages.messages import WAYS
from server.console.pages.migration import PHASES, STEPS
from server.console.pages.overview import CHARTS
from server.console.preferences import THEMES
from server.console.words import LANGUAGES, language_of, words_in

HERE = Path(server.console.__file__).parent
ENGLISH = words_in("en").texts
#: Texts whose keys are put together in a template.
MADE = {
    *(f"nav.{page.name}" for page in PAGES),
    *(f"theme.{theme}" for theme in THEMES),
    *(f"chart.{chart}" for chart, _, _ in CHARTS),
    *(f"line.{line}" for _, _, lines in CHARTS for line in lines),
    *(f"messages.{way}" for way in WAYS),
    *(f"phase.{phase}" for phase in PHASES),
    *(f"{table}.{step}" for table in ("step", "stepDoes") for step in STEPS),
    *(f"traceEvent.{kind.name}" for kind in TraceEventKind),
    *(f"traceGroup.{state.name}" for state in TraceGroupState),
    *(f"state.{state}" for state in ("running", "done", "failed", "cancelled")),
}
#: Those that a page shows where there is one; what has none is shown by its name.
MAYBE = {
    *(f"jobDoes.{kind}" for kind in kinds()),
    *(
        f"rocksdb.{name}"
        for name in (
            *("estimated_keys", "immutable_memtables", "l0_files", "memtable_bytes"),
            *("pending_compaction_bytes", "sst_bytes", "stalls_l0_files", "stalls_memtables"),
            "stalls_pending_compaction",
        )
    ),
}


def _used() -> set[str]:
    templates = "".join(path.read_text() for path in (HERE / "templates").glob("*.html"))
    code = "".join(path.read_text() for path in HERE.rglob("*.py"))
    named = re.findall(r"""\bt\(\s*["']([\w.]+)["']\s*[,)]""", templates)
    named += re.findall(r"""\bwords\(\s*["']([\w.]+)["']\s*[,)]""", code)
    notices = re.findall(r"""notice="(\w+)\"""", code)
    return {*named, *(f"notice.{one}" for one in notices)} | MADE


def _places(text: str) -> set[str | None]:
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_catalogue_is_complete(language: str) -> None:
    texts = words_in(language).texts
    assert set(texts) == set(ENGLISH)
    assert {key: _places(text) for key, text in texts.items()} == {
        key: _places(text) for key, text in ENGLISH.items()
    }
    assert {key for key, text in texts.items() if not text.strip()} == set()


def test_pages_ask_for_texts_that_are_there_and_for_all_of_them() -> None:
    assert _used() - set(ENGLISH) == set()
    assert set(ENGLISH) - _used() - MAYBE == set()


def test_the_languages_differ() -> None:
    chinese = words_in("zh").texts
    same = {key for key, text in ENGLISH.items() if chinese[key] == text}
    assert same <= {"nav.rocksdb"}


@pytest.mark.parametrize(
    ("chosen", "accepted", "wanted"),
    [
        (None, "", "en"),
        ("zh", "en", "zh"),
        ("../../etc", "zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        (None, "fr, zh;q=0.5, en;q=0.7", "en"),
        (None, "de,fr", "en"),
        (None, "zh;q=0, en;q=0.1", "en"),
        (None, "zh;q=x, *", "en"),
        (None, "zh-TW", "zh"),
    ],
)
def test_the_language_is_the_chosen_or_the_browsers(
    chosen: str | None, accepted: str, wanted: str
) -> None:
    assert language_of(chosen, accepted) == wanted


def test_an_unknown_text_is_an_error() -> None:
    with pytest.raises(KeyError):
        words_in("en")("nav.nothing")
