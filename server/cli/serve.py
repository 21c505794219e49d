"""kvcq serve: run the service with its embedded store."""

from __future__ import annotations

import errno
import logging
import os
from typing import TYPE_CHECKING

import click

from migration.opening import open_any
from server.access import AUDIT
from server.app import run_server
from server.cli.listeners import JsonListener, SystemdListener, TextListener
from server.cli.on_disk import unusable
from server.cli.settings_options import read_settings, refused, settings_options
from server.cli.terminal import BadRequestError, CommandError, json_option
from server.config import LogFormat
from server.edge import CallFilter
from server.errors import FrontError, HttpBindError, ServerBindError
from server.process import (
    AppendedFile,
    JsonLines,
    Outlet,
    OutletHandler,
    ServiceManager,
    TextLines,
    end_process_soon,
    in_words,
    prepare_to_open_stores,
)
from server.process import as_json as lines_as_json
from server.settings import RunningSettings
from store.errors import InvalidArgumentError, StoreError, StoreFailedError, StoreLockedError

if TYPE_CHECKING:
    from pathlib import Path

    from server.app import Listener
    from server.config import ServerConfig
    from server.settings import Sources

#: Errors of the system for a directory that cannot be created, read or written.
_UNUSABLE = frozenset(
    {
        *(errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR),
        *(errno.ELOOP, errno.ENAMETOOLONG, errno.EEXIST),
    }
)


logger = logging.getLogger(__name__)

_STANDARD_OUTPUT, _STANDARD_ERROR = 1, 2


#: Packages of this product, whose names are the names of their loggers.
_OWN_PACKAGES = ("store", "kvcq", "migration", "server")


@click.command()
@settings_options
@json_option
def serve(sources: Sources, as_json: bool) -> None:
    """Serve the store in a directory over gRPC until SIGTERM or Ctrl-C.

    A second signal ends it within seconds, if necessary without closing the store. On SIGHUP it
    reads its settings again and applies those that can change at run time.

    With --json, events are printed to standard output as one JSON object per line.
    """
    settings = read_settings(sources)
    in_objects = settings.config.log_format is LogFormat.JSON
    errors = Outlet(_STANDARD_ERROR, dropped=lines_as_json if in_objects else in_words)
    _begin_log(settings.config, errors)
    for line in settings.warnings():
        logger.warning(line)
    prepare_to_open_stores()
    try:
        settings = settings.with_recorded_segments()
    except (StoreError, OSError) as error:
        raise _why_not_opened(error, settings.config) from error
    config = settings.config
    audit = _begin_audit(config.audit_file, errors)
    results = Outlet(_STANDARD_OUTPUT, dropped=lines_as_json)
    listeners: list[Listener]
    if as_json:
        listeners = [JsonListener(results.write)]
    elif in_objects:
        listeners = [JsonListener(errors.write)]  # so that each line is a JSON object
    else:
        listeners = [TextListener(config, errors.write)]
    manager = ServiceManager.of(os.environ)
    if manager is not None:
        listeners.append(SystemdListener(manager))
    try:
        running = RunningSettings(settings, sources)
        running.on_change(_set_log_level)
        run_server(
            running,
            open_any,
            listeners,
            hurry=lambda: end_process_soon("a second signal asked the process to end"),
        )
    except ServerBindError as error:
        raise CommandError(str(error), _advice_on_address(error)) from error
    except FrontError as error:
        hint = "the log says why; --workers 1 runs without front-end processes"
        raise CommandError(str(error), hint) from error
    except InvalidArgumentError as error:
        raise refused(error, sources) from error
    except (StoreError, OSError) as error:
        raise _why_not_opened(error, config) from error
    finally:
        audit.close()
        for outlet in (errors, results):
            outlet.drain()
    end_process_soon("the store is closed, and the process should have ended")


def _begin_log(config: ServerConfig, outlet: Outlet) -> None:
    handler = OutletHandler(outlet)
    handler.addFilter(CallFilter())
    handler.setFormatter(JsonLines() if config.log_format is LogFormat.JSON else TextLines())
    logging.basicConfig(handlers=[handler])
    _set_log_level(config)
    # Jobs run every second; neither runs nor runs skipped under load should be logged.
    logging.getLogger("apscheduler").setLevel(logging.ERROR)


def _set_log_level(config: ServerConfig) -> None:
    """Set the log level. Levels below INFO apply to this product only: details of gRPC and asyncio
    would hide its own."""
    level = logging.getLevelNamesMapping()[config.log_level.name]
    logging.getLogger().setLevel(max(level, logging.INFO))
    for package in _OWN_PACKAGES:
        logging.getLogger(package).setLevel(level if level < logging.INFO else logging.NOTSET)


def _begin_audit(file: Path | None, errors: Outlet) -> logging.Handler:
    """Write the audit log to the file, or among the lines of the log. Raises BadRequestError."""
    audit = logging.getLogger(AUDIT)
    handler: logging.Handler = OutletHandler(errors)
    if file is not None:
        try:
            handler = AppendedFile(file)
        except OSError as error:
            raise BadRequestError(
                f"server.audit_file: {file} cannot be written: {error.strerror or error}"
            ) from error
    handler.setFormatter(logging.Formatter("%(message)s"))
    audit.addHandler(handler)
    audit.setLevel(logging.INFO)  # independent of the log's level
    audit.propagate = False
    return handler


def _why_not_opened(error: StoreError | OSError, config: ServerConfig) -> CommandError:
    """The error for a store that could not be opened, with the next step."""
    if isinstance(error, StoreFailedError):  # failed after it was opened
        return CommandError(f"the store could not be closed cleanly: {error}")
    if isinstance(error, StoreError):
        locked = "stop the other server, or choose another directory with --data"
        what = "" if isinstance(error, StoreLockedError) else "the store cannot be opened: "
        return unusable(error, config.data_dir, what, locked=locked)
    if error.errno in _UNUSABLE:
        reason = error.strerror or str(error)
        return BadRequestError(
            f"--data: {config.data_dir} cannot be used: {reason}",
            "choose a directory where this user can create files",
        )
    return CommandError(f"the store cannot be opened: {error}")


def _advice_on_address(error: ServerBindError) -> str:
    if isinstance(error, HttpBindError):
        return f"choose another address with --set server.{error.name}_host=… or _port=…"
    if error.reason.errno == errno.EADDRINUSE:
        return "stop the process that uses the port, or choose another one with --port"
    if error.reason.errno == errno.EACCES:
        return "choose a port of at least 1024 with --port"
    return "--host must be an address of this machine: 127.0.0.1, or 0.0.0.0 for all of them"
