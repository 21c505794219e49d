"""Every setting by name: `server.port`, or `KVCQ_SERVER__PORT` in the environment."""

from __future__ import annotations

import dataclasses
import difflib
import typing
from pathlib import Path
from typing import Any, NamedTuple

from server.config import ServerConfig
from server.errors import UnknownSettingError
from store.config import StoreConfig
from store.setting import About, about

#: The tables of the file. Fields that `setting` does not declare are not set by a file.
TABLES: dict[str, type] = {"server": ServerConfig, "store": StoreConfig}

#: Two underscores stand for the dot. What Kubernetes sets for a service, such as
#: KVCQ_SERVICE_HOST and KVCQ_PORT, and what the other commands read, such as KVCQ_SERVER, have one.
_PREFIX, _DOT = "KVCQ_", "__"


#: Settings of 0.1 that are constants now. A file, variable or flag that names one is warned about,
#: and the server starts.
RETIRED: frozenset[str] = frozenset(
    {
        f"{table}.{key}"
        for table, keys in {
            "server": (
                "ingest_dir max_peer_calls max_calls max_peer_pulls max_pulls max_peer_streams "
                "max_streams sent_limit_bytes max_wait_ms max_pull_bytes drain_notice_s "
                "busy_poll_us worker_threads cold_readers cold_read_share scrub_bytes_per_s "
                "backup_bytes_per_s stream_window max_stream_queues max_stream_credit_bytes "
                "producer_limit remembered_batches remembered_messages metrics_topics "
                "metrics_groups"
            ),
            "store": (
                "flush_least_pages flush_thorough_interval_ms group_commit_gather_ms "
                "delete_batch_max clean_interval_s max_queue_count max_light_queues "
                "hot_queue_limit light_offset_bytes max_dispatch_lag_bytes kv_flush_interval_s "
                "kv_flush_bytes expiry_margin_s rocksdb_statistics hot_read_bytes crc_item warm_up "
                "preallocate sync_flush_timeout_s disk_clean_forcibly_ratio"
            ),
        }.items()
        for key in keys.split()
    }
)


class Known(NamedTuple):
    """One setting."""

    name: str
    kind: Any  # its type, as annotated
    default: object
    about: About

    @property
    def table(self) -> str:
        return self.name.partition(".")[0]

    @property
    def key(self) -> str:
        return self.name.partition(".")[2]


def _all_known() -> dict[str, Known]:
    found = {}
    for table, owner in TABLES.items():
        # The store only imports Path for type checkers.
        kinds = typing.get_type_hints(owner, localns={"Path": Path})
        known = about(owner)
        for one in dataclasses.fields(owner):
            if one.name in known:
                name = f"{table}.{one.name}"
                found[name] = Known(name, kinds[one.name], one.default, known[one.name])
    return found


KNOWN: dict[str, Known] = _all_known()
_BY_VARIABLE = {f"{_PREFIX}{name.replace('.', _DOT)}".upper(): name for name in (*KNOWN, *RETIRED)}
_VARIABLES = {name: variable for variable, name in _BY_VARIABLE.items()}


def variable_of(name: str) -> str:
    """The setting's environment variable."""
    return _VARIABLES[name]


def known_setting(name: str) -> Known:
    """Find a setting by its full name, or by its key if it is in the table [server]. Raises
    UnknownSettingError with the nearest name."""
    found = KNOWN.get(name) or KNOWN.get(f"server.{name}")
    if found is None:
        raise UnknownSettingError(name, _nearest(name.rpartition(".")[2]))
    return found


def is_retired(name: str) -> bool:
    """Whether the name, with or without its table, was a setting that is now a constant."""
    return name in RETIRED or f"server.{name}" in RETIRED


def name_of_variable(variable: str) -> str | None:
    """The setting of an environment variable; None for one that is not ours.

    Raises UnknownSettingError with the nearest variable for one with our prefix.
    """
    if not variable.startswith(_PREFIX) or _DOT not in variable:
        return None
    name = _BY_VARIABLE.get(variable)
    if name is None:
        near = _nearest(variable.partition(_DOT)[2].lower())
        raise UnknownSettingError(variable, None if near is None else variable_of(near))
    return name


def _nearest(key: str) -> str | None:
    """The setting, of any table, with the most similar key."""
    names = {known.key: name for name, known in KNOWN.items()}
    near = difflib.get_close_matches(key, names, n=1)
    return names[near[0]] if near else None
