"""server/settings/running.py: what a running server takes of new settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from server.settings import RunningSettings, Sources
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pathlib import Path

    from server.config import ServerConfig


class File:
    """A file of settings, and what a server has that was started with it."""

    def __init__(self, path: Path, text: str, **flags: object) -> None:
        self._path = path
        self.write(text)
        sources = Sources(path, {f"store.{name}": value for name, value in flags.items()})
        self.running = RunningSettings(sources.read(), sources)
        self.told: list[ServerConfig] = []
        self.running.on_change(self.told.append)

    def write(self, text: str) -> None:
        self._path.write_text(text)


@pytest.fixture
def file(tmp_path: Path) -> File:
    text = "[server]\nport = 1\nmemory_limit_bytes = 500000000\n[store]\nreserved_hours = 9\n"
    return File(tmp_path / "kvcq.toml", text)


def test_what_may_change_is_taken_and_the_rest_waits(file: File) -> None:
    server = "[server]\nport = 2\nmemory_limit_bytes = 600000000\n"
    file.write(f"{server}[store]\nskip_damaged_records = true\n")
    taken, waiting = file.running.take(file.running.read())
    assert taken == (
        ("server.memory_limit_bytes", 500_000_000, 600_000_000),
        ("store.reserved_hours", 9.0, 72.0),
    )
    names = [one.name for one in waiting]
    assert names == ["server.port", "store.store_host", "store.skip_damaged_records"]
    assert file.running.waiting == waiting
    config = file.running.config
    assert (config.port, config.memory_limit_bytes) == (1, 600_000_000)
    assert config.store_config(1).reserved_hours == 72.0
    assert config.store_config(1).skip_damaged_records is False
    assert file.told == [config]
    settings = file.running.settings
    assert settings.origin("store.reserved_hours").kind == "default"
    assert settings.origin("store.skip_damaged_records").kind == "default", "it is not taken yet"


def test_the_same_again_changes_nothing_and_tells_nobody(file: File) -> None:
    assert file.running.take(file.running.read()) == ((), ())
    assert file.told == []


def test_what_goes_back_before_the_restart_waits_no_longer(file: File) -> None:
    file.write("[server]\nport = 2\nmemory_limit_bytes = 500000000\n[store]\nreserved_hours = 9\n")
    file.running.take(file.running.read())
    assert file.running.waiting
    file.write("[server]\nport = 1\nmemory_limit_bytes = 500000000\n[store]\nreserved_hours = 9\n")
    file.running.take(file.running.read())
    assert file.running.waiting == ()


@pytest.mark.parametrize(
    "text", ["[server", "[server]\nprot = 1\n", "[server]\nmemory_limit_bytes = 0\n"]
)
def test_a_wrong_file_is_refused_whole(file: File, text: str) -> None:
    before = file.running.settings
    file.write(text)
    with pytest.raises(InvalidArgumentError):
        file.running.read()
    assert file.running.settings is before
    assert file.told == []


def test_values_that_do_not_go_together_with_what_stays_are_refused(tmp_path: Path) -> None:
    file = File(tmp_path / "kvcq.toml", "", disk_clean_ratio=0.8)
    read = Sources(flags={"store.disk_clean_ratio": 0.99})
    with pytest.raises(InvalidArgumentError, match="disk_full_ratio"):
        read.read()
    file.write("[store]\ndisk_full_ratio = 0.7\n")
    with pytest.raises(InvalidArgumentError, match=r"store.disk_full_ratio: 0.7"):
        file.running.read()


def test_a_setting_that_only_an_opening_finds_out_waits_when_it_is_taken_back(
    tmp_path: Path,
) -> None:
    file = File(tmp_path / "kvcq.toml", "[store]\nreclaim_unexpired = true\n")
    file.write("")
    taken, waiting = file.running.take(file.running.read())
    assert taken == ()
    assert waiting == (("store.reclaim_unexpired", True, None),)
    assert file.running.config.store["reclaim_unexpired"] is True
