"""Report the state of the server: to a person, a program, or systemd."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from server.cli.terminal import escape, notes
from server.settings import plain_value, toml_value
from server.texts import address

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from server.config import ServerConfig
    from server.errors import SettingsRefusedError
    from server.process import ServiceManager
    from server.settings import Change

#: Each report of progress while opening extends systemd's timeout to this many seconds from now.
_EXTEND_S = 60


class TextListener:
    """Prints events for people, and what to type next."""

    def __init__(self, config: ServerConfig, write: Callable[[str], None]) -> None:
        self._config = config
        self._write = write
        self._step = ""

    def listening(self, host: str, port: int) -> None:
        self._note(
            f"[bold]kvcq[/] is listening on {address(host, port)} and opening "
            f"{self._config.data_dir}"
        )

    def opening(self, step: str, fraction: float) -> None:
        if step != self._step or fraction >= 1:
            self._step = step
            self._note(f"  {step}: {fraction:.0%}")

    def ready(self, host: str, port: int) -> None:
        where = (
            ""
            if (host, port) == ("127.0.0.1", 8081)
            else f" --server {shlex.quote(address(host, port))}"
        )
        kvcq = _command()
        self._note("[bold green]ready.[/] In a second terminal:")
        if self._config.tls_cert is not None and self._config.tls_port is None:
            self._note("  export KVCQ_TLS_CA=FILE  # the CA of the server's certificate")
        if self._config.access:
            self._note("  export KVCQ_ACCESS_KEY=NAME KVCQ_SECRET_FILE=FILE")
        self._note(f'  {kvcq} put{where} orders "hello" --key order-1 --tag created')
        self._note(f"  {kvcq} pull{where} orders")
        self._note(f"  {kvcq} query{where} orders order-1")
        self._note("Ctrl-C stops it cleanly.")

    def reloading(self) -> None:
        self._note("reloading the settings")

    def reload_refused(self, error: SettingsRefusedError) -> None:
        """Does nothing: the log has the error."""

    def reloaded(self, taken: Sequence[Change], waiting: Sequence[Change]) -> None:
        if not taken and not waiting:
            self._note("no setting has changed")
        for text, changes in (("is now", taken), ("at the next start:", waiting)):
            for one in changes:
                self._note(f"{one.name} {text} {escape(toml_value(one.after) or 'not set')}")

    def draining(self) -> None:
        self._note("draining: finishing calls under way, then closing the store")

    def stopped(self) -> None:
        self._note("stopped, the store is closed")

    def _note(self, text: str) -> None:
        with notes.capture() as rendered:
            notes.print(text, highlight=False, soft_wrap=True)
        self._write(rendered.get())


class JsonListener:
    """Prints events for programs: one JSON object per line on standard output."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def listening(self, host: str, port: int) -> None:
        self._emit(event="listening", host=host, port=port)

    def opening(self, step: str, fraction: float) -> None:
        self._emit(event="opening", step=step, fraction=fraction)

    def ready(self, host: str, port: int) -> None:
        self._emit(event="ready", host=host, port=port)

    def reloading(self) -> None:
        """Does nothing: only the result of a reload is reported."""

    def reload_refused(self, error: SettingsRefusedError) -> None:
        self._emit(event="reload refused", reason=str(error))

    def reloaded(self, taken: Sequence[Change], waiting: Sequence[Change]) -> None:
        self._emit(
            event="reloaded",
            taken={one.name: plain_value(one.after) for one in taken},
            waiting={one.name: plain_value(one.after) for one in waiting},
        )

    def draining(self) -> None:
        self._emit(event="draining")

    def stopped(self) -> None:
        self._emit(event="stopped")

    def _emit(self, **values: object) -> None:
        self._write(json.dumps(values) + "\n")


class SystemdListener:
    """Reports to the service manager that started the process (sd_notify), and to its watchdog.

    The watchdog is called from the event loop, so a server whose loop hangs is restarted.
    """

    def __init__(self, manager: ServiceManager) -> None:
        self._manager = manager
        self._ready = False
        self._opening = ""
        self._beat: asyncio.TimerHandle | None = None

    def listening(self, host: str, port: int) -> None:
        self._feed()
        self._tell(f"listens on {address(host, port)}, opening the store")

    def opening(self, step: str, fraction: float) -> None:
        status = f"opening the store: {step}, {fraction:.0%}"
        if status != self._opening:
            self._opening = status
            # A recovery may take longer than TimeoutStartSec.
            self._tell(status, f"EXTEND_TIMEOUT_USEC={_EXTEND_S * 1_000_000}")

    def ready(self, host: str, port: int) -> None:
        self._ready = True
        self._tell(f"serves on {address(host, port)}", "READY=1")

    def reloading(self) -> None:
        if self._ready:  # before that, the next READY=1 reports the start, not a reload
            # The time tells systemd which reload the next READY=1 belongs to.
            now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
            self._manager.tell("RELOADING=1", f"MONOTONIC_USEC={now_us}")

    def reload_refused(self, error: SettingsRefusedError) -> None:
        # systemd has no state for a failed reload. The server continues with its old settings.
        self._reloaded(str(error))

    def reloaded(self, taken: Sequence[Change], waiting: Sequence[Change]) -> None:
        wait = f", {len(waiting)} wait for a restart" if waiting else ""
        self._reloaded(f"settings read again: {len(taken)} changed{wait}")

    def draining(self) -> None:
        self._tell("finishing calls, then closing the store", "STOPPING=1")

    def stopped(self) -> None:
        if self._beat is not None:
            self._beat.cancel()
        self._tell("stopped, the store is closed")

    def _reloaded(self, status: str) -> None:
        self._tell(status, *(["READY=1"] if self._ready else []))

    def _tell(self, status: str, *lines: str) -> None:
        self._manager.tell(f"STATUS={status}", *lines)

    def _feed(self) -> None:
        every_s = self._manager.watchdog_s
        if every_s is not None:
            self._manager.tell("WATCHDOG=1")
            self._beat = asyncio.get_running_loop().call_later(every_s / 3, self._feed)


def _command() -> str:
    """How to type the name of this program, which may be in a virtual environment."""
    called = Path(sys.argv[0])
    if called.name == "kvcq" and called.parent.name == "bin":
        here = Path.cwd()
        return str(called.relative_to(here)) if called.is_relative_to(here) else str(called)
    return "kvcq"
