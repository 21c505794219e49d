"""Settings that change while the server runs: who goes by them, and what SIGHUP does."""

from __future__ import annotations

import asyncio
import logging
import os
import pty
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.config import LogLevel
from server.errors import SettingsRefusedError
from server.settings import KNOWN, Sources, toml_value
from tests.support.child_process import child_process
from tests.support.rpc_errors import error_info
from tests.support.server_process import ROOT, TIMEOUT_S
from tests.support.serving import serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.serving import Served


class File:
    """A file of settings that a test writes again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._always = ""
        self.write()

    def write(self, *, server: str = "", store: str = "") -> None:
        """What `serving` sets stays as it is."""
        small = "segment_bytes = 1048576\ndefault_queue_count = 4\n"
        if "default_queue_count" in store:
            small = "segment_bytes = 1048576\n"
        self.path.write_text(f"[server]\n{server}\n[store]\n{small}{store}\n")


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path / "kvcq.toml")


def _sources(file: File, tmp_path: Path) -> Sources:
    flags = {"port": 0, "drain_grace_s": 5.0, "data_dir": tmp_path / "s"}
    return Sources(file.path, flags)


async def _put(served: Served, topic: str) -> None:
    await served.messages.Put(pb.PutRequest(message=pb.Message(topic=topic, body=b"x", queue_id=0)))


async def test_puts_go_by_what_was_taken(tmp_path: Path, file: File) -> None:
    async with serving(tmp_path / "s", sources=_sources(file, tmp_path)) as served:
        await _put(served, "A")
        file.write(store="auto_create_topics = false")
        taken, waiting = await served.server.reload()
        assert [one.name for one in taken] == ["store.auto_create_topics"]
        assert waiting == ()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await _put(served, "B")
        assert error_info(refused.value).reason == "UNKNOWN_TOPIC"
        await _put(served, "A")
        file.write(store="default_queue_count = 7")
        await served.server.reload()
        await _put(served, "B")
        described = await served.topics.DescribeTopic(pb.DescribeTopicRequest(name="B"))
        assert described.topic.queue_count == 7


async def test_a_topic_that_was_asked_for_before_has_the_new_number_of_queues(
    tmp_path: Path, file: File
) -> None:
    async with serving(tmp_path / "s", sources=_sources(file, tmp_path)) as served:
        file.write(store="auto_create_topics = false")
        await served.server.reload()
        put = pb.PutRequest(message=pb.Message(topic="A", body=b"x"))
        with pytest.raises(grpc.aio.AioRpcError):
            await served.messages.Put(put)
        file.write(store="default_queue_count = 1")
        await served.server.reload()
        for _ in range(4):
            await served.messages.Put(put)


async def test_each_part_of_the_store_has_what_was_taken(tmp_path: Path, file: File) -> None:
    async with serving(tmp_path / "s", sources=_sources(file, tmp_path)) as served:
        file.write(store="reserved_hours = 1\ndisk_full_ratio = 1\nreclaim_unexpired = true")
        await served.server.reload()
        store = served.store
        config = store.config
        assert (config.reserved_hours, config.reclaim_unexpired) == (1.0, True)
        services = store._services
        for part in (
            store._appends,
            store._appends._guard,
            store._topics,
            store._upkeep.checkpoints,
            services.flush,
            services.retention,
        ):
            assert part._config is config  # type: ignore[union-attr]  # of interval flushes
        file.write()
        await served.server.reload()
        assert store.config.reclaim_unexpired is True, "it waits for a restart"
        assert store.config.reserved_hours == 72


#: Values that fit together, where the default and a little is none.
_OTHERS: dict[str, Any] = {
    "store.disk_clean_ratio": 0.7,
    "store.disk_full_ratio": 0.88,
    "store.light_hours": ("device-=24",),
    "store.delete_when_hours": (5, 6),
    "store.auto_create_topics": False,
    "store.auto_create_groups": False,
    "store.reclaim_unexpired": True,
    "server.log_level": LogLevel.WARNING,
}


def _held_by(served: Served, name: str) -> object:
    """The value that what it is for goes by."""
    table, key = name.split(".")
    server = served.server
    if table == "store":
        return getattr(served.store.config, key)
    match key:
        case "memory_limit_bytes":
            return server._edge.memory._limit_bytes
        case "drain_grace_s":
            return server._config.drain_grace_s
        case "log_level":  # `kvcq serve` goes by it, and not the server
            return server._config.log_level
    raise AssertionError(f"who goes by {name}?")


async def test_each_setting_that_may_change_is_gone_by_when_it_did(
    tmp_path: Path, file: File
) -> None:
    flags = {"port": 0, "data_dir": tmp_path / "s"}
    async with serving(tmp_path / "s", sources=Sources(file.path, flags)) as served:
        wanted: dict[str, Any] = {}
        for name, known in KNOWN.items():
            if known.about.live:
                default: Any = known.default
                small = isinstance(default, float) and default <= 1
                wanted[name] = _OTHERS.get(name) or (default / 2 if small else default + 1)
        wanted |= {name: value for name, value in _OTHERS.items() if value is False}
        lines = {
            table: "\n".join(
                f"{name.partition('.')[2]} = {toml_value(value)}"
                for name, value in wanted.items()
                if name.startswith(f"{table}.")
            )
            for table in ("server", "store")
        }
        file.write(server=lines["server"], store=lines["store"])
        taken, _ = await served.server.reload()
        assert {one.name for one in taken} == set(wanted)
        assert {name: _held_by(served, name) for name in wanted} == wanted


async def test_a_reload_before_the_store_is_open_reaches_it(tmp_path: Path, file: File) -> None:
    # The file changes between the start of the server and the opening of its store.
    sources = _sources(file, tmp_path)
    async with serving(tmp_path / "s", sources=sources, wait_ready=False) as served:
        file.write(store="reserved_hours = 2")
        await served.server.reload()
        await served.until_ready()
        assert served.store.config.reserved_hours == 2


@pytest.mark.parametrize("text", ["[server", "[server]\nprot = 1", "[store]\nreserved_hours = 0"])
async def test_a_wrong_file_changes_nothing(tmp_path: Path, file: File, text: str) -> None:
    async with serving(tmp_path / "s", sources=_sources(file, tmp_path)) as served:
        before = served.store.config
        file.path.write_text(text)
        with pytest.raises(SettingsRefusedError, match="the old ones remain in effect"):
            await served.server.reload()
        assert served.store.config is before
        await _put(served, "A")


async def test_a_hangup_with_a_wrong_file_is_a_line_in_the_log(
    tmp_path: Path, file: File, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path / "s", sources=_sources(file, tmp_path)) as served:
        file.path.write_text("[server]\nprot = 1")
        with caplog.at_level(logging.ERROR, "server.app"):
            served.server._hung_up(False)
            await asyncio.gather(*served.server._hangups)
        assert "did you mean server.port?" in caplog.text
        await _put(served, "A")


@pytest.fixture
def hangup_is_heard() -> Iterator[None]:
    """A server leaves SIGHUP ignored where it was started so, as these tests may be by nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def _serve(tmp_path: Path, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "server", "serve", "--port", "0", "--data", str(tmp_path / "s")),
        *("--config", str(tmp_path / "kvcq.toml"), "--json", *more),
    ]


@pytest.mark.integration
@pytest.mark.usefixtures("hangup_is_heard")
def test_a_hangup_reloads_and_the_process_goes_on(tmp_path: Path, file: File) -> None:
    with child_process(
        _serve(tmp_path), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        events = iter(process.stdout)
        next(line for line in events if '"ready"' in line)
        file.write(server="port = 1", store="reserved_hours = 5")
        process.send_signal(signal.SIGHUP)
        told = next(line for line in events if '"reloaded"' in line)
        assert told == (
            '{"event": "reloaded", "taken": {"store.reserved_hours": 5.0}, "waiting": {}}\n'
        ), "the flag wins over the port of the file"
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0


@pytest.mark.integration
@pytest.mark.usefixtures("file")
def test_a_hangup_is_not_heard_under_nohup(tmp_path: Path) -> None:
    with child_process(
        ["nohup", *_serve(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        events = iter(process.stdout)
        next(line for line in events if '"ready"' in line)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0
        assert not [line for line in events if '"reloaded"' in line]


@pytest.mark.integration
@pytest.mark.usefixtures("hangup_is_heard", "file")
def test_a_terminal_that_is_closed_ends_the_server_in_order(tmp_path: Path) -> None:
    terminal, end = pty.openpty()
    # The first terminal that a new session opens controls it.
    command = ["sh", "-c", 'exec "$@" <"$0"', os.ttyname(end), *_serve(tmp_path)]
    with child_process(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        events = iter(process.stdout)
        next(line for line in events if '"ready"' in line)
        os.close(end)
        os.close(terminal)
        assert process.wait(TIMEOUT_S) == 0
        assert list(events)[-1] == '{"event": "stopped"}\n'
    assert not (tmp_path / "s" / "abort").exists()
