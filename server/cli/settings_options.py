"""The flags for settings, of `kvcq serve` and `kvcq config`."""

from __future__ import annotations

import os
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from server.settings import Settings, Sources
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

#: Flags whose name differs from the setting's: parameter to flag and setting.
_OPTIONS = {
    "host": ("--host", "server.host"),
    "port": ("--port", "server.port"),
    "data_dir": ("--data", "server.data_dir"),
    "flush_mode": ("--flush", "store.flush_mode"),
    "tls_cert": ("--tls-cert", "server.tls_cert"),
    "tls_key": ("--tls-key", "server.tls_key"),
    "tls_ca": ("--tls-ca", "server.tls_ca"),
    "access": ("--access", "server.access"),
    "insecure_listen": ("--insecure-listen", "server.insecure_listen"),
    "workers": ("--workers", "server.workers"),
}


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the flags for settings, which the command gets as `sources`."""

    @click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
    @click.option(
        "--port",
        type=int,
        metavar="N",
        help="Port to listen on; 0 picks a free port.  [default: 8081]",
    )
    @click.option(
        "--data",
        "data_dir",
        type=click.Path(file_okay=False),
        metavar="DIRECTORY",
        help="Directory of the store.  [default: ./data]",
    )
    @click.option(
        "--flush",
        "flush_mode",
        type=click.Choice(["async", "sync"]),
        help="Acknowledge puts after the append (async), or once they are on disk (sync).  "
        "[default: async]",
    )
    @click.option(
        "--tls-cert",
        type=click.Path(),
        metavar="FILE",
        help="PEM: the certificate and its chain.",
    )
    @click.option(
        "--tls-key",
        type=click.Path(),
        metavar="FILE",
        help="PEM: the private key of the certificate.",
    )
    @click.option(
        "--tls-ca",
        type=click.Path(),
        metavar="FILE",
        help="PEM: only accept clients with a certificate from this CA.",
    )
    @click.option(
        "--access/--no-access",
        default=None,
        help="Only accept calls from users who have the required permissions.",
    )
    @click.option(
        "--insecure-listen",
        is_flag=True,
        default=None,
        help="Allow a --host that other machines can reach, without TLS or without --access.",
    )
    @click.option(
        "--workers",
        type=int,
        metavar="N",
        help="Number of gRPC front-end processes; with 1 the store process serves gRPC itself.  "
        "[default: 1]",
    )
    @click.option(
        "--config",
        "config_file",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar="KVCQ_CONFIG",
        help="TOML file with settings; also from KVCQ_CONFIG.",
    )
    @click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="Any setting of the file, such as store.reserved_hours=24; may be repeated.",
    )
    @wraps(command)
    def with_sources(
        config_file: Path | None, settings: tuple[str, ...], **parameters: object
    ) -> object:
        flags: dict[str, object] = dict(map(_name_and_value, settings))
        options = {}
        for parameter, (option, name) in _OPTIONS.items():
            value = parameters.pop(parameter)
            if value is not None:
                flags[name] = value
                options[name] = option
        file = None if config_file is None else config_file.absolute()
        sources = Sources(file, flags, options, dict(os.environ))
        return command(sources=sources, **parameters)

    return with_sources


def read_settings(sources: Sources) -> Settings:
    """The settings from all sources. Raises click.UsageError, naming the flag if there is one."""
    try:
        return sources.read()
    except InvalidArgumentError as error:
        raise refused(error, sources) from error


def refused(error: InvalidArgumentError, sources: Sources) -> click.UsageError:
    """The error, naming the flag that set the value."""
    option = sources.options.get(error.field)
    return click.UsageError(str(error) if option is None else f"{option}: {error.reason}")


def _name_and_value(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--set")
    return name.strip(), value.strip()
