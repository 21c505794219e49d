"""kvcq config: shows the settings and their sources, reloads them, and imports a broker's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from server.cli.online import connect, server_options
from server.cli.settings_options import read_settings, settings_options
from server.cli.terminal import (
    BadRequestError,
    Sections,
    console,
    counted,
    escape,
    json_option,
    print_json,
    print_table,
    say,
)
from server.settings import KNOWN, import_broker_conf, plain_value, toml_value, variable_of
from store.errors import InvalidArgumentError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kvcq_client import ServerSetting, SettingChange
    from server.settings import Settings, Sources

given_option = click.option(
    "--given", is_flag=True, help="Only show settings that differ from the default."
)


class _Shown(NamedTuple):
    name: str
    value: Any
    origin: str
    where: str
    live: bool
    rocketmq: str
    waiting: tuple[Any] | None = None


@click.group(cls=Sections, invoke_without_command=True)
@settings_options
@given_option
@json_option
def config(sources: Sources, given: bool, as_json: bool) -> None:
    """Show the settings that `kvcq serve` with these flags would use, and where each value comes
    from.

    Settings come from a TOML file, the environment and flags; flags override the environment, which
    overrides the file. In the environment, server.port is KVCQ_SERVER__PORT, with two underscores
    for the dot.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    settings = read_settings(sources)
    for line in settings.warnings():
        say(line)
    try:
        settings = settings.with_recorded_segments()
    except (StoreError, OSError) as error:
        say(f"the store was not read: {error}")
    _show(_of_settings(settings), given=given, as_json=as_json)


@config.command()
@given_option
@server_options
def running(given: bool, server: str, as_json: bool) -> None:
    """Show the settings of a running server, and those that wait for its restart."""
    with connect(server) as client:
        found = client.settings()
    _show(_of_server(found), given=given, as_json=as_json)


@config.command()
@server_options
def reload(server: str, as_json: bool) -> None:
    """Make a running server read its settings again, as SIGHUP does.

    Settings that can change at run time are applied, the others wait for a restart. If any value is
    wrong, none is applied.
    """
    with connect(server) as client:
        taken, waiting = client.reload_settings()
    if as_json:
        print_json({"taken": _documents(taken), "waiting": _documents(waiting)})
        return
    if not taken and not waiting:
        console.print("no setting has changed")
    if taken:
        _print_changes("taken", taken)
    if waiting:
        _print_changes("wait for a restart", waiting)


@config.command("import")
@click.argument("broker_conf", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
def import_(broker_conf: Path, as_json: bool) -> None:
    """Convert a RocketMQ broker's settings to a file for --config, and print it."""
    try:
        imported = import_broker_conf(broker_conf)
    except InvalidArgumentError as error:
        raise BadRequestError(str(error), field=error.field) from error
    except (StoreError, OSError) as error:
        raise BadRequestError(f"{broker_conf}: {error}") from error
    if as_json:
        values = {name: plain_value(value) for name, value in imported.values.items()}
        left = dict(imported.without_counterpart)
        print_json({"settings": values, "withoutCounterpart": left})
        return
    console.out(imported.toml(), highlight=False, end="")
    count = len(imported.without_counterpart)
    if count:
        say(f"without a counterpart here: {counted(count, 'setting')} of the broker")


def _of_settings(settings: Settings) -> Iterable[_Shown]:
    for name, value in settings.values().items():
        known, origin = KNOWN[name], settings.origin(name)
        yield _Shown(
            name,
            plain_value(value),
            origin.kind,
            origin.where,
            known.about.live,
            known.about.rocketmq,
        )


def _of_server(found: Iterable[ServerSetting]) -> Iterable[_Shown]:
    for one in found:
        waiting = (one.waiting,) if one.is_waiting else None
        yield _Shown(one.name, one.value, one.origin, one.where, one.live, one.rocketmq, waiting)


def _show(shown: Iterable[_Shown], *, given: bool, as_json: bool) -> None:
    rows = [one for one in shown if not given or one.origin != "default" or one.waiting]
    if as_json:
        print_json([_document(one) for one in rows])
        return
    if not rows:
        say("all settings have their defaults")
        return
    print_table(
        "",
        ("setting", "value", "from", "changes", "RocketMQ"),
        [(one.name, _text(one), one.where or one.origin, _when(one), one.rocketmq) for one in rows],
    )


def _document(one: _Shown) -> dict[str, Any]:
    document = {
        "name": one.name,
        "value": one.value,
        "origin": one.origin,
        "where": one.where or None,
        "variable": variable_of(one.name) if one.name in KNOWN else None,
        "live": one.live,
        "rocketmqName": one.rocketmq or None,
    }
    return document if one.waiting is None else {**document, "waiting": one.waiting[0]}


def _text(one: _Shown) -> str:
    shown = toml_value(one.value) or "-"
    return shown if one.waiting is None else f"{shown}, then {toml_value(one.waiting[0]) or '-'}"


def _when(one: _Shown) -> str:
    return "on reload" if one.live else "at a start"


def _documents(changes: Iterable[SettingChange]) -> list[dict[str, Any]]:
    return [one._asdict() for one in changes]


def _print_changes(title: str, changes: Sequence[SettingChange]) -> None:
    rows = [
        (one.name, toml_value(one.before) or "-", toml_value(one.after) or "-") for one in changes
    ]
    print_table(escape(title), ("setting", "before", "after"), rows)
