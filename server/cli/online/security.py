"""Options and environment variables for the user and the certificates of a command.

A secret is only read from a file or the environment, never from an option, because command lines
appear in process lists and shell histories.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from kvcq_client import TLS, Credentials
from server.cli.terminal import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Callable

_META = "kvcq.security"
_SECRET = "kvcq.secret"
_LONGEST_SECRET = 4096


class _Option(NamedTuple):
    name: str
    environment: str
    metavar: str | None
    help: str


_OPTIONS = (
    _Option("tls", "KVCQ_TLS", None, "Use TLS, trusting the system's CAs."),
    _Option("tls-ca", "KVCQ_TLS_CA", "FILE", "Use TLS, trusting this CA (PEM)."),
    _Option("tls-cert", "KVCQ_TLS_CERT", "FILE", "Client certificate (PEM)."),
    _Option("tls-key", "KVCQ_TLS_KEY", "FILE", "Private key of the client certificate (PEM)."),
    _Option("access-key", "KVCQ_ACCESS_KEY", "NAME", "Access key: the user to act as."),
    _Option(
        "secret-file",
        "KVCQ_SECRET_FILE",
        "FILE",
        "File with the user's secret; '-' reads standard input.",
    ),
)


def security_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options for TLS and user, which `tls_of` and `credentials_of` read."""

    def note(context: click.Context, parameter: click.Parameter, value: object) -> object:
        name = parameter.name or ""
        context.meta.setdefault(_META, {})[name] = value
        return value

    for each in reversed(_OPTIONS):
        command = click.option(
            f"--{each.name}",
            is_flag=each.metavar is None,
            envvar=each.environment,
            metavar=each.metavar,
            expose_value=False,
            callback=note,
            help=f"{each.help}  [env: {each.environment}]",
        )(command)
    return command


def given_options() -> str:
    """The given options as text, to append to another command; with a leading space."""
    context = click.get_current_context(silent=True)
    if context is None:
        return ""
    words: list[str] = []
    for name, value in context.meta.get(_META, {}).items():
        if value and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            words.append(f"--{name.replace('_', '-')}")
            if value is not True:
                words.append(str(value))
    return f" {shlex.join(words)}" if words else ""


def tls_of() -> TLS | None:
    """The TLS settings of the command. Raises BadRequestError."""
    ca, cert, key = (_given(name) for name in ("tls_ca", "tls_cert", "tls_key"))
    if not (_given("tls") or ca or cert or key):
        return None
    for option, file in (("--tls-ca", ca), ("--tls-cert", cert), ("--tls-key", key)):
        if file is not None:
            _read(option, Path(file))
    try:
        return TLS(ca=ca, cert=cert, key=key)
    except ValueError:
        raise BadRequestError("give --tls-cert and --tls-key together") from None


def credentials_of() -> Credentials | None:
    """The user of the command; None if none is given. Raises BadRequestError."""
    access_key, file = _given("access_key"), _given("secret_file")
    if access_key is None:
        if file is not None:
            raise BadRequestError(
                "--secret-file needs a user", "add --access-key NAME, or KVCQ_ACCESS_KEY"
            )
        return None
    meta = click.get_current_context().meta
    if _SECRET not in meta:  # kept, because standard input can be read only once
        meta[_SECRET] = "" if file is None else read_secret("--secret-file", file)
    secret = meta[_SECRET]
    if not secret:
        raise BadRequestError(
            f"no secret is given for user {access_key}",
            "add --secret-file FILE, or KVCQ_SECRET_FILE",
        )
    try:
        return Credentials(access_key, secret)
    except ValueError as error:
        raise BadRequestError(f"--access-key: {error}") from None


def read_secret(option: str, file: str) -> str:
    """The secret in the file; "-" for standard input. Raises BadRequestError."""
    # Reads exactly one line of standard input: the command may read the rest.
    is_line = file == "-"
    data = sys.stdin.buffer.readline(_LONGEST_SECRET) if is_line else _read(option, Path(file))
    try:
        return data[:_LONGEST_SECRET].decode().strip()
    except UnicodeDecodeError:
        raise BadRequestError(f"{option}: {file} is not text") from None


def _given(name: str) -> str | None:
    context = click.get_current_context(silent=True)
    found = None if context is None else context.meta.get(_META, {}).get(name)
    return found or None


def _read(option: str, file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise BadRequestError(
            f"{option}: {file} cannot be read: {error.strerror or error}"
        ) from None
