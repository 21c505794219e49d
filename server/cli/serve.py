"""kvcq serve: run the service with its embedded store."""

from __future__ import annotations

import errno
import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from migration.opening import open_any
from server.app import run_server
from server.cli.on_disk import unusable
from server.cli.settings_options import read_settings, refused, settings_options
from server.cli.terminal import BadRequestError, CommandError, escape, json_option, notes
from server.errors import HttpBindError, ServerBindError
from server.process import Outlet, OutletHandler, end_process_soon, prepare_to_open_stores
from server.settings import RunningSettings, plain_value, toml_value
from store.errors import (
    InvalidArgumentError,
    StoreError,
    StoreFailedError,
    StoreLockedError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from server.app import Listener
    from server.config import ServerConfig
    from server.settings import Change, Sources

#: What the system says of a directory that cannot be made, read or written in.
_UNUSABLE = frozenset(
    {
        *(errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR),
        *(errno.ELOOP, errno.ENAMETOOLONG, errno.EEXIST),
    }
)


_STANDARD_OUTPUT, _STANDARD_ERROR = 1, 2


@click.command()
@settings_options
@json_option
def serve(sources: Sources, as_json: bool) -> None:
    """Serve the store in a directory over gRPC, until SIGTERM or Ctrl-C.

    A second signal ends it within seconds, as if it were killed if need be. On SIGHUP it reads its
    settings again, and takes those that may change while it runs.

    With --json, what happens is told as one JSON object a line on standard output.
    """
    prepare_to_open_stores()
    errors = Outlet(_STANDARD_ERROR)
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        handlers=[OutletHandler(errors)],
    )
    # Its jobs run every second: neither a run is news, nor one that is left out under load.
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    settings = read_settings(sources)
    try:
        settings = settings.with_recorded_segments()
    except (StoreError, OSError) as error:
        raise _why_not_opened(error, settings.config) from error
    config = settings.config
    results = Outlet(_STANDARD_OUTPUT)
    listener: Listener = (
        JsonListener(results.write) if as_json else TextListener(config, errors.write)
    )
    try:
        run_server(
            RunningSettings(settings, sources),
            open_any,
            listener,
            hurry=lambda: end_process_soon("the process was told twice to end"),
        )
    except ServerBindError as error:
        raise CommandError(str(error), _advice_on_address(error)) from error
    except InvalidArgumentError as error:
        raise refused(error, sources) from error
    except (StoreError, OSError) as error:
        raise _why_not_opened(error, config) from error
    finally:
        for outlet in (errors, results):
            outlet.drain()
    end_process_soon("the store is closed, and the process was to end")


def _why_not_opened(error: StoreError | OSError, config: ServerConfig) -> CommandError:
    """What is wrong with the directory, and what to do where the text does not say so itself."""
    if isinstance(error, StoreLockedError):
        return CommandError(
            str(error), "stop the other server, or choose another directory with --data"
        )
    if isinstance(error, StoreFailedError):  # after it had been opened
        return CommandError(f"the store could not be closed in order: {error}")
    if isinstance(error, StoreError):
        return unusable(error, config.data_dir, "the store cannot be opened: ")
    if error.errno in _UNUSABLE:
        reason = error.strerror or str(error)
        return BadRequestError(
            f"--data: {config.data_dir} cannot be used: {reason}",
            "choose a directory that this user may make files in",
        )
    return CommandError(f"the store cannot be opened: {error}")


def _advice_on_address(error: ServerBindError) -> str:
    if isinstance(error, HttpBindError):
        return f"--set server.{error.name}_port=… and server.{error.name}_host=… say where it is"
    if error.reason.errno == errno.EADDRINUSE:
        return "stop what has the port, or choose another one with --port"
    if error.reason.errno == errno.EACCES:
        return "choose a port from 1024 up, with --port"
    return "--host takes an address of this machine: 127.0.0.1, or 0.0.0.0 for all it has"


class TextListener:
    """Tells a person what happens, and what to type next."""

    def __init__(self, config: ServerConfig, write: Callable[[str], None]) -> None:
        self._config = config
        self._write = write
        self._step = ""

    def listening(self, host: str, port: int) -> None:
        self._note(f"[bold]kvcq[/] listens on {host}:{port}, opening {self._config.data_dir}")

    def opening(self, step: str, fraction: float) -> None:
        if step != self._step or fraction >= 1:
            self._step = step
            self._note(f"  {step}: {fraction:.0%}")

    def ready(self, host: str, port: int) -> None:
        where = "" if (host, port) == ("127.0.0.1", 8081) else f" --server {host}:{port}"
        kvcq = _command()
        self._note("[bold green]ready.[/] In a second terminal:")
        self._note(f'  {kvcq} put{where} orders "hello" --key order-1 --tag created')
        self._note(f"  {kvcq} pull{where} orders")
        self._note(f"  {kvcq} query{where} orders order-1")
        self._note("Ctrl-C ends it in order.")

    def reloaded(self, taken: Sequence[Change], waiting: Sequence[Change]) -> None:
        if not taken and not waiting:
            self._note("settings read again: nothing has changed")
        for text, changes in (("is now", taken), ("at the next start:", waiting)):
            for one in changes:
                self._note(f"{one.name} {text} {escape(toml_value(one.after) or 'not set')}")

    def draining(self) -> None:
        self._note("draining: finishing calls, then closing the store")

    def stopped(self) -> None:
        self._note("stopped; the store is closed")

    def _note(self, text: str) -> None:
        with notes.capture() as rendered:
            notes.print(text, highlight=False, soft_wrap=True)
        self._write(rendered.get())


class JsonListener:
    """Tells a program what happens: one object a line on standard output."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def listening(self, host: str, port: int) -> None:
        self._emit(event="listening", host=host, port=port)

    def opening(self, step: str, fraction: float) -> None:
        self._emit(event="opening", step=step, fraction=fraction)

    def ready(self, host: str, port: int) -> None:
        self._emit(event="ready", host=host, port=port)

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


def _command() -> str:
    """How to type this program again: `make run` starts it out of a virtual environment."""
    called = Path(sys.argv[0])
    if called.name == "kvcq" and called.parent.name == "bin":
        here = Path.cwd()
        return str(called.relative_to(here)) if called.is_relative_to(here) else str(called)
    return "kvcq"
