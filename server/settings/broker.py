"""Converts a broker's `broker.conf` to a settings file of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from migration.broker_config import read_properties, reclaims_unexpired
from server.settings.conversion import converted, plain_value, toml_value
from server.settings.names import KNOWN
from server.settings.sources import Sources
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_DEFAULT_LISTEN_PORT = "10911"
#: Names that earlier versions had.
_EARLIER = {"mapedFileSizeCommitLog": "mappedFileSizeCommitLog"}
_FLUSH_MODES = {"ASYNC_FLUSH": "async", "SYNC_FLUSH": "sync"}


class Imported(NamedTuple):
    """The converted settings of a broker."""

    #: Values by name, as `Sources` takes them.
    values: Mapping[str, object]
    #: By name, why the line is there or what to check.
    remarks: Mapping[str, str]
    #: The broker's settings that have no counterpart here, with their values.
    without_counterpart: Mapping[str, str]

    def toml(self) -> str:
        """The file. Settings without a counterpart are comments."""
        lines: list[str] = []
        for table in dict.fromkeys(KNOWN[name].table for name in self.values):
            lines += ["", f"[{table}]"] if lines else [f"[{table}]"]
            for name, value in self.values.items():
                if KNOWN[name].table == table:
                    remark = f"  # {self.remarks[name]}" if name in self.remarks else ""
                    lines.append(f"{KNOWN[name].key} = {toml_value(value)}{remark}")
        if self.without_counterpart:
            lines += ["", "# No counterpart in kvcq:"]
            lines += [f"# {name} = {value}" for name, value in self.without_counterpart.items()]
        return "\n".join(lines) + "\n"


def import_broker_conf(path: Path) -> Imported:
    """Convert the broker's settings.

    Raises InvalidArgumentError naming a broker's setting that cannot be converted, and OSError.
    """
    given = {_EARLIER.get(name, name): value for name, value in read_properties(path).items()}
    values: dict[str, object] = {}
    names = {known.about.rocketmq: name for name, known in KNOWN.items() if known.about.rocketmq}
    for theirs, name in names.items():
        if theirs not in given:
            continue
        try:
            values[name] = converted(KNOWN[name], _CONVERSIONS.get(theirs, _same)(given[theirs]))
        except (InvalidArgumentError, ValueError, KeyError) as error:
            why = error.reason if isinstance(error, InvalidArgumentError) else "is not valid"
            raise InvalidArgumentError(theirs, f"{given[theirs]!r}: {why}, in {path}") from error
    remarks = {}
    if "brokerIP1" in given:
        port = given.get("listenPort", _DEFAULT_LISTEN_PORT)
        address = f"{given['brokerIP1']}:{port}"
        values["store.store_host"] = converted(KNOWN["store.store_host"], address)
    if "store.reclaim_unexpired" not in values:
        values["store.reclaim_unexpired"] = reclaims_unexpired(path)
        remarks["store.reclaim_unexpired"] = "the broker's default"
    if "server.host" in values:
        remarks["server.host"] = "other machines need TLS and access: docs/security.md"
    if "server.data_dir" in values:
        remarks["server.data_dir"] = "take it over with: kvcq migrate start"
    in_order = {name: values[name] for name in KNOWN if name in values}
    flags = {name: plain_value(value) for name, value in in_order.items()}
    Sources(flags={**flags, "server.insecure_listen": True}).read()  # checks them together
    left = {name: value for name, value in given.items() if name not in names}
    return Imported(in_order, remarks, left)


def _same(text: str) -> str:
    return text


def _ratio(text: str) -> float:
    return int(text) / 100


#: From the broker's unit and words to ours, where they differ.
_CONVERSIONS: dict[str, Callable[[str], object]] = {
    "flushDiskType": _FLUSH_MODES.__getitem__,
    "diskMaxUsedSpaceRatio": _ratio,
    "diskSpaceWarningLevelRatio": _ratio,
    "deleteWhen": lambda text: [int(hour) for hour in text.split(";")],
    # Only with a port: see above.
    "brokerIP1": lambda text: f"{text}:0",
}
