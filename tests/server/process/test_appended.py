"""server/process/appended.py: on real files."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import pytest

from server.process import AppendedFile

if TYPE_CHECKING:
    from pathlib import Path


def say(handler: AppendedFile, text: str) -> None:
    handler.handle(logging.LogRecord("x", logging.INFO, "", 0, text, (), None))


def test_lines_are_appended_and_the_file_is_not_for_everybody(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    for text in ("one", "two"):
        handler = AppendedFile(path)
        say(handler, text)
        handler.close()
        handler.close()
    assert path.read_text() == "one\ntwo\n"
    assert path.stat().st_mode & 0o007 == 0


def test_a_file_that_was_moved_away_is_opened_again(tmp_path: Path) -> None:
    path, moved = tmp_path / "lines", tmp_path / "lines.1"
    handler = AppendedFile(path)
    say(handler, "before")
    while path.read_text() != "before\n":
        pass
    path.rename(moved)
    say(handler, "after")
    handler.close()
    assert (moved.read_text(), path.read_text()) == ("before\n", "after\n")


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        AppendedFile(tmp_path / "none" / "lines")


def test_whoever_logs_never_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handler = AppendedFile(tmp_path / "lines", waiting_most=5)
    reached, go_on = threading.Event(), threading.Event()
    write = handler._file.handle

    def stuck(record: logging.LogRecord) -> bool:
        reached.set()
        go_on.wait()
        return bool(write(record))

    monkeypatch.setattr(handler._file, "handle", stuck)
    say(handler, "first")
    reached.wait()
    for number in range(20):
        say(handler, str(number))
    go_on.set()
    handler.close()
    assert (tmp_path / "lines").read_text().splitlines() == ["first", *"01234"]
    assert "15 lines" in caplog.text


def test_what_the_disk_refuses_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handler = AppendedFile(tmp_path / "lines")

    def full(record: logging.LogRecord) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(handler._file, "format", full)
    say(handler, "lost")
    handler.close()
    assert "were lost: 1" in caplog.text
    assert "No space left" in caplog.text


class Complaints(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.heard = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.set()


def test_lines_are_written_again_when_the_directory_is_back(tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    directory.mkdir()
    handler = AppendedFile(directory / "lines")
    complaints = Complaints()
    logger = logging.getLogger("server.process.appended")
    logger.addHandler(complaints)
    try:
        directory.rename(tmp_path / "gone")
        say(handler, "lost")
        assert complaints.heard.wait(10), "nobody says that lines were lost"
        directory.mkdir()
        say(handler, "kept")
        handler.close()
    finally:
        logger.removeHandler(complaints)
    assert (directory / "lines").read_text() == "kept\n"


def test_a_full_disk_is_complained_of_once_in_a_while(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "lines"
    path.symlink_to("/dev/full")
    handler = AppendedFile(path)
    for number in range(50):
        say(handler, str(number))
    handler.close()
    assert caplog.text.count("were lost") == 1
