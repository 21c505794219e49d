"""Settings of the server: a TOML file, then flags; checked once, unknown names refused.

The file has two tables, `[server]` and `[store]`; their keys are the field names of ServerConfig
and store.config.StoreConfig. The store's root is the server's `data_dir`, so it has no key.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import ipaddress
import tomllib
import typing
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from server.errors import UnknownSettingError
from store.bounds import check_settings
from store.config import StoreConfig
from store.errors import InvalidArgumentError
from store.store_dir import inspect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.bounds import Bounds

#: gRPC copies a request in the event loop, twice: 8 ms for so much. (Its own default is 4 MiB, and
#: one message may have a body of that size.)
DEFAULT_MAX_RECEIVE_BYTES = 16 << 20

#: Both included. What has none here: from 0 to 2**53.
_BOUNDS: dict[str, Bounds] = {
    "port": (0, 65_535),
    "max_receive_bytes": (1 << 16, (1 << 31) - 1),
    **dict.fromkeys(
        (f"max{whose}_{kind}" for whose in ("", "_peer") for kind in ("calls", "pulls", "streams")),
        (1, 1_000_000),
    ),
    "memory_limit_bytes": (64 << 20, 1 << 50),
    "sent_limit_bytes": (1 << 20, 1 << 50),
    "max_wait_ms": (0, 86_400_000),
    "max_pull_bytes": (1, 1 << 30),
    "drain_notice_s": (0, 3600),
    "drain_grace_s": (0, 86_400),
    "worker_threads": (1, 256),
    "cold_read_share": (0.01, 1),
    "stream_window": (1, 65_536),
    "max_stream_queues": (1, 100_000_000),
    "max_stream_credit_bytes": (1, 1 << 40),
    "producer_limit": (1, 100_000_000),
    "remembered_batches": (1, 1_000_000),
    "remembered_messages": (1, 1_000_000_000),
}


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """Settings of one server process. Raises InvalidArgumentError, naming the field."""

    host: str = "127.0.0.1"  # an address to listen on, or a name that stands for one
    port: int = 8081  # 0: any free one
    data_dir: Path = Path("data")
    ingest_dir: Path = Path("ingest")  # sorted files for IngestFiles, below data_dir if relative

    # TLS, from PEM files that may change while the server runs. With a CA clients must show a
    # certificate that it signed.
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_ca: Path | None = None
    access: bool = False  # every call needs a user, and the right to it
    insecure_listen: bool = False  # beyond this machine, without TLS or without `access`

    max_receive_bytes: int = DEFAULT_MAX_RECEIVE_BYTES  # of one request
    # Calls under way: of one connection, and of all. Pulls may be parked, streams last.
    max_peer_calls: int = 4096
    max_calls: int = 8192
    max_peer_pulls: int = 8192
    max_pulls: int = 12_288
    max_peer_streams: int = 512
    max_streams: int = 2048
    # Private memory above which large requests wait for each other, and slow ones are refused.
    memory_limit_bytes: int = 512 << 20
    sent_limit_bytes: int = 128 << 20  # of large responses that wait to be sent
    max_wait_ms: int = 60_000  # a long poll may ask for this much
    max_pull_bytes: int = 64 << 20  # a pull may ask for this much; it gets 8 MiB at most
    drain_notice_s: float = 0.2  # new calls are refused for so long before the port is closed
    drain_grace_s: float = 10.0  # calls under way may take this long after SIGTERM
    worker_threads: int = 8  # for what may block: cold reads, queries, topics, groups
    # Of one core, for reads far behind the end, while more than 1 MiB/s is put. 1: no limit.
    cold_read_share: float = 0.1
    stream_window: int = 64  # batches of one put stream that wait to be answered
    max_stream_queues: int = 1_000_000  # queues one subscription may follow
    max_stream_credit_bytes: int = 1 << 30

    # Producers remembered, with their latest batches. What is forgotten is found in the log.
    producer_limit: int = 4096
    remembered_batches: int = 16
    remembered_messages: int = 1_000_000  # in all their batches; about 90 bytes each

    store: dict[str, Any] = field(default_factory=dict)  # StoreConfig fields but root

    def __post_init__(self) -> None:
        def check(name: str, ok: bool, rule: str) -> None:  # noqa: FBT001 - reads as a table
            if not ok:
                raise InvalidArgumentError(name, f"{getattr(self, name)!r} is not {rule}")

        check("host", bool(self.host), "an address")
        self._check_tls()
        if not self.insecure_listen:
            self._check_listening("host", self.host)
        check_settings(self, _BOUNDS, InvalidArgumentError)

    def _check_tls(self) -> None:
        needs = {"tls_cert": "tls_key", "tls_key": "tls_cert", "tls_ca": "tls_cert"}
        for given, other in needs.items():
            if getattr(self, given) is not None and getattr(self, other) is None:
                raise InvalidArgumentError(other, f"is missing, and {given} is given")

    def _check_listening(self, field: str, host: str) -> None:
        """Raises InvalidArgumentError for an address that others reach without being asked."""
        if _is_loopback(host) or (self.tls_cert is not None and self.access):
            return
        raise InvalidArgumentError(
            field,
            f"{host} is reached from other machines: that takes tls_cert and tls_key, and "
            "access=true (see docs/security.md). Where something else protects the port, "
            "--insecure-listen allows it",
        )

    @property
    def ingest_directory(self) -> Path:
        """The only directory that IngestFiles takes files from."""
        return Path(self.data_dir, self.ingest_dir).absolute()

    def store_config(self, port: int) -> StoreConfig:
        """The store's settings for a server that listens on `port`."""
        values: dict[str, Any] = {"root": self.data_dir, **self.store}
        values.setdefault("store_host", (_advertised(self.host), port))
        with _in_table("store"):
            return StoreConfig(**values)


def load_config(path: Path | None, flags: dict[str, object]) -> ServerConfig:
    """Defaults, then the file, then `flags`: names as in the file, such as `store.flush_mode`.

    Flags may be text. Raises InvalidArgumentError naming the setting.
    """
    settings: dict[str, object] = {}
    if path is not None:
        settings.update(_read_file(path))
    settings.update(flags)
    server: dict[str, Any] = {}
    store: dict[str, Any] = {}
    for name, value in settings.items():
        table, _, key = name.rpartition(".")
        table = table or "server"
        owner = _TABLES.get(table)
        if owner is None or key not in _keys(owner):
            raise UnknownSettingError(name, _nearest(key))
        (store if table == "store" else server)[key] = _convert(name, key, value, owner)
    with _in_table("server"):
        return ServerConfig(**server, store=store)


def with_recorded_segments(config: ServerConfig) -> ServerConfig:
    """With the segment size that the store was made with, where no other one is asked for.

    Raises StoreFormatError and OSError when the directory cannot be read, or is damaged.
    """
    if "segment_bytes" in config.store:
        return config
    _, identity = inspect(config.data_dir)
    if identity is None:
        return config
    return dataclasses.replace(
        config, store={**config.store, "segment_bytes": identity.segment_bytes}
    )


def _read_file(path: Path) -> dict[str, object]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InvalidArgumentError(str(path), f"cannot be read: {why}") from error
    found: dict[str, object] = {}
    for table, entries in document.items():
        if table not in ("server", "store") or not isinstance(entries, dict):
            raise InvalidArgumentError(
                f"{path}: {table}", "is not known; there are the tables [server] and [store]"
            )
        for key, value in entries.items():
            found[f"{table}.{key}"] = value
    return found


#: The tables of the file, and the fields that no file sets.
_TABLES: dict[str, type] = {"server": ServerConfig, "store": StoreConfig}
_NOT_SET = {ServerConfig: "store", StoreConfig: "root"}


def _keys(owner: type) -> list[str]:
    return [one.name for one in dataclasses.fields(owner) if one.name != _NOT_SET[owner]]


def _nearest(key: str) -> str | None:
    """The setting of either table whose key is most like this one."""
    names = {each: f"{table}.{each}" for table, owner in _TABLES.items() for each in _keys(owner)}
    near = difflib.get_close_matches(key, names, n=1)
    return names[near[0]] if near else None


@contextmanager
def _in_table(table: str) -> Iterator[None]:
    """A setting that is refused is named with its table."""
    try:
        yield
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{table}.{error.field}", error.reason) from error


def _convert(name: str, key: str, value: object, owner: type) -> object:
    """`value`, perhaps text, as the type that field `key` of `owner` has."""
    # The store imports Path for type checkers alone.
    kind = typing.get_type_hints(owner, localns={"Path": Path})[key]
    try:
        if kind == tuple[str, int]:
            return _host(str(value))
        if kind in (Path, Path | None):
            return _path(value)
    except ValueError as error:
        raise InvalidArgumentError(name, str(error)) from error
    try:
        if not isinstance(value, str) or kind is str:
            return msgspec.convert(value, kind)
        if kind in (int, float):  # 1e400 is a number, out of bounds
            return kind(value)
        given = value.split(",") if typing.get_origin(kind) is tuple else value.lower()
        return msgspec.convert(given, kind, strict=False)
    except (ValueError, msgspec.ValidationError):
        raise InvalidArgumentError(name, f"{value!r} is not {_words(kind)}") from None


def _host(text: str) -> tuple[str, int]:
    address, _, port = text.rpartition(":")
    return str(ipaddress.ip_address(address.strip("[]"))), int(port)


def _path(value: object) -> Path:
    if value == "":
        raise ValueError("is empty")
    if not isinstance(value, str | Path):
        raise ValueError(f"{value!r} is not a path")
    return Path(value).expanduser()


def _words(kind: Any) -> str:  # noqa: ANN401 - a type, or a generic alias
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return "one of " + ", ".join(str(one.value) for one in kind)
    if typing.get_origin(kind) is tuple:
        return "a list of whole numbers"
    return {int: "a whole number", float: "a number", str: "text"}.get(kind, "true or false")


def _is_loopback(host: str) -> bool:
    """Whether nobody but this machine reaches it; any name but localhost may be everywhere."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _advertised(host: str) -> str:
    """What records name as their store host: an address, never "any"."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "127.0.0.1"
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "::1"
    return str(address)
