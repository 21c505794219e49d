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
from server.cli.terminal import BadRequestError, CommandError, json_option, notes
from server.config import load_config, with_recorded_segments
from server.errors import ServerBindError
from server.process import Outlet, OutletHandler, end_process_soon, prepare_to_open_stores
from store.errors import (
    InvalidArgumentError,
    StoreError,
    StoreFailedError,
    StoreLockedError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.app import Listener
    from server.config import ServerConfig

#: What the system says of a directory that cannot be made, read or written in.
_UNUSABLE = frozenset(
    {
        *(errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR),
        *(errno.ELOOP, errno.ENAMETOOLONG, errno.EEXIST),
    }
)


_STANDARD_OUTPUT, _STANDARD_ERROR = 1, 2


@click.command()
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=int, help="Port to listen on; 0: any free one.  [default: 8081]")
@click.option(
    "--data",
    "data_dir",
    type=click.Path(file_okay=False),
    metavar="DIRECTORY",
    help="The store.  [default: ./data]",
)
@click.option(
    "--flush",
    "flush_mode",
    type=click.Choice(["async", "sync"]),
    help="Acknowledge puts when appended, or when on disk.  [default: async]",
)
@click.option("--tls-cert", type=click.Path(), help="PEM: the certificate, and what signed it.")
@click.option("--tls-key", type=click.Path(), help="PEM: its private key.")
@click.option("--tls-ca", type=click.Path(), help="PEM: clients must have certificates of this CA.")
@click.option("--access/--no-access", default=None, help="Take calls of users with rights alone.")
@click.option(
    "--insecure-listen",
    is_flag=True,
    default=None,
    help="Allow a --host that others reach, without TLS or without --access.",
)
@click.option(
    "--config", "config_file", type=click.Path(dir_okay=False, path_type=Path), help="TOML file."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Any setting of the file, such as store.reserved_hours=24; may be repeated.",
)
@json_option
def serve(
    host: str | None,
    port: int | None,
    data_dir: str | None,
    flush_mode: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    tls_ca: str | None,
    access: bool | None,
    insecure_listen: bool | None,
    config_file: Path | None,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Serve the store in a directory over gRPC, until SIGTERM, SIGHUP or Ctrl-C.

    A second signal ends it within seconds, as if it were killed if need be.

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
    options: dict[str, tuple[str, object]] = {
        "--host": ("server.host", host),
        "--port": ("server.port", port),
        "--data": ("server.data_dir", data_dir),
        "--flush": ("store.flush_mode", flush_mode),
        "--tls-cert": ("server.tls_cert", tls_cert),
        "--tls-key": ("server.tls_key", tls_key),
        "--tls-ca": ("server.tls_ca", tls_ca),
        "--access": ("server.access", access),
        "--insecure-listen": ("server.insecure_listen", insecure_listen),
    }
    flags: dict[str, object] = dict(map(_name_and_value, settings))
    given = {name: option for option, (name, value) in options.items() if value is not None}
    flags |= {name: value for name, value in options.values() if name in given}
    try:
        config = load_config(config_file, flags)
        config.store_config(config.port)  # refuse bad settings before anything is begun
    except InvalidArgumentError as error:
        raise _refused(error, given) from error
    try:
        config = with_recorded_segments(config)
    except (StoreError, OSError) as error:
        raise _why_not_opened(error, config) from error
    results = Outlet(_STANDARD_OUTPUT)
    listener: Listener = (
        JsonListener(results.write) if as_json else TextListener(config, errors.write)
    )
    try:
        run_server(
            config,
            open_any,
            listener,
            hurry=lambda: end_process_soon("the process was told twice to end"),
        )
    except ServerBindError as error:
        raise CommandError(str(error), _advice_on_address(error)) from error
    except InvalidArgumentError as error:
        raise _refused(error, given) from error
    except (StoreError, OSError) as error:
        raise _why_not_opened(error, config) from error
    finally:
        for outlet in (errors, results):
            outlet.drain()
    end_process_soon("the store is closed, and the process was to end")


def _refused(error: InvalidArgumentError, given: dict[str, str]) -> click.UsageError:
    """The error with the option that gave the setting; `given`: setting to option."""
    option = given.get(error.field)
    return click.UsageError(str(error) if option is None else f"{option}: {error.reason}")


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
    if error.reason.errno == errno.EADDRINUSE:
        return "stop what has the port, or choose another one with --port"
    if error.reason.errno == errno.EACCES:
        return "choose a port from 1024 up, with --port"
    return "--host takes an address of this machine: 127.0.0.1, or 0.0.0.0 for all it has"


def _name_and_value(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--set")
    return name.strip(), value.strip()


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
