"""Settings of the server, each declared in one line; server/settings/ reads them.

A new setting is a field of ServerConfig: type, default and the arguments of `setting`. Flag,
environment variable, `kvcq config`, the page of settings and the reload follow from that.
"""

from __future__ import annotations

import enum
import ipaddress
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from server.texts import split_address
from store.bounds import check_settings
from store.config import StoreConfig
from store.errors import InvalidArgumentError
from store.setting import bounds_of, setting

if TYPE_CHECKING:
    from collections.abc import Iterator

#: gRPC copies a request in the event loop, twice: 8 ms for this size. (Its own default is 4 MiB,
#: and one message may have a body of that size.)
DEFAULT_MAX_RECEIVE_BYTES = 16 << 20
#: Sorted files for IngestFiles, below the data directory: no other place is read.
_INGEST = "ingest"


class LogFormat(enum.Enum):
    """The format of log lines."""

    TEXT = "text"
    JSON = "json"


class LogLevel(enum.Enum):
    """The lowest level that is logged; upper-case names are those of Python's logging."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """Settings of one server process. Raises InvalidArgumentError, naming the field."""

    host: str = setting(
        "127.0.0.1",
        "address to listen on, or a host name",
        rocketmq="bindAddress",
    )
    port: int = setting(
        8081, "port to listen on; 0: any free port", bounds=(0, 65_535), rocketmq="listenPort"
    )
    data_dir: Path = setting(Path("data"), "directory of the store", rocketmq="storePathRootDir")

    # TLS, from PEM files that may change while the server runs.
    tls_cert: Path | None = setting(
        None, "PEM: the certificate and its chain; the file is read again when it changes"
    )
    tls_key: Path | None = setting(None, "PEM: its private key; read again when it changes")
    tls_ca: Path | None = setting(
        None, "PEM: clients must show a certificate of this CA; read again when it changes"
    )
    tls_port: int | None = setting(
        None,
        "second port, for TLS; `port` takes none then; 0: any free port; not set: `port` takes "
        "TLS where there is a certificate",
    )
    # AdminService, MigrationService, JobService and AccessService on an address of their own.
    admin_host: str | None = setting(None, "address for administration; not set: that of `host`")
    admin_port: int | None = setting(
        None, "port for administration; 0: any free port; not set: the port of the API"
    )
    access: bool = setting(False, "only accept calls from users who have the required permissions")
    key_file: Path | None = setting(
        None, "key that seals the users' secrets, created if absent; not set: data_dir plus .key"
    )
    audit_file: Path | None = setting(
        None, "JSON lines about refused callers and acts of administrators; not set: in the log"
    )
    insecure_listen: bool = setting(
        False, "allow a `host` that other machines reach without TLS or without `access`"
    )

    advertised_address: str | None = setting(
        None,
        "host and port that clients of RocketMQ are told to connect to; not set: those by which "
        "each of them came",
    )

    max_receive_bytes: int = setting(
        DEFAULT_MAX_RECEIVE_BYTES, "largest request", bounds=(1 << 16, (1 << 31) - 1)
    )
    memory_limit_bytes: int = setting(
        512 << 20,
        "private memory above which large requests wait for each other, and slow ones are refused",
        bounds=(64 << 20, 1 << 50),
        live=True,
    )
    drain_grace_s: float = setting(
        10.0, "calls under way may take this long after SIGTERM", bounds=(0, 86_400), live=True
    )
    workers: int = setting(
        1,
        "gRPC front-end processes; with 1 the store process serves gRPC itself; above 1 only on "
        "Linux",
        bounds=(1, 256),
    )
    keep_latest_hours: float = setting(
        24.0,
        "how often superseded messages are looked for in topics that keep the latest message "
        "of each key; 0: never",
        bounds=(0, 87_600),
    )
    scrub_period_hours: float = setting(
        168.0,
        "how often each record of the log and its units are verified; 0: never",
        bounds=(0, 87_600),
    )
    backup_to: tuple[str, ...] = setting(
        (),
        "directories and URLs such as s3://bucket/prefix that backups may be kept in; the first "
        "is the default",
    )

    log_format: LogFormat = setting(LogFormat.TEXT, "format of log lines: text or JSON")
    log_level: LogLevel = setting(LogLevel.INFO, "lowest level that is logged", live=True)

    tracing: bool = setting(
        False, "spans of calls by OpenTelemetry, which `kvcq[tracing]` installs"
    )

    # Pages for machines over HTTP, with the certificate and the users of the API.
    metrics_host: str = setting("127.0.0.1", "address of /metrics, /livez and /readyz")
    metrics_port: int | None = setting(
        None, "their port; 0: any free port; not set: they are not served"
    )
    metrics_cluster: str = setting(
        "DefaultCluster",
        "cluster label of metrics that RocketMQ has too",
        rocketmq="brokerClusterName",
    )
    metrics_node: str = setting(
        "", "node label of the same metrics; empty: the host name", rocketmq="brokerName"
    )

    # Pages for people, over HTTP; with the certificate and the users of the API.
    console_host: str = setting("127.0.0.1", "address of the console")
    console_port: int | None = setting(
        None, "its port; 0: any free port; not set: it is not served"
    )
    console_names: tuple[str, ...] = setting(
        (), "host names that browsers use for the console; addresses and localhost need none"
    )
    console_admin: bool = setting(
        False, "without `access`: everyone who reaches the console may change things"
    )

    store: dict[str, Any] = field(default_factory=dict)  # StoreConfig fields but root

    def __post_init__(self) -> None:
        def check(name: str, ok: bool, rule: str) -> None:  # noqa: FBT001 - reads as a table
            if not ok:
                raise InvalidArgumentError(name, f"{getattr(self, name)!r} is not {rule}")

        check("host", bool(self.host), "an address")
        check("metrics_host", bool(self.metrics_host), "an address")
        check("console_host", bool(self.console_host), "an address")
        check("console_port", _is_port(self.console_port), "a port from 0 to 65535")
        check("admin_port", _is_port(self.admin_port), "a port from 0 to 65535")
        check("metrics_port", _is_port(self.metrics_port), "a port from 0 to 65535")
        check("tls_port", _is_port(self.tls_port), "a port from 0 to 65535")
        check(
            "advertised_address",
            self.advertised_address is None or split_address(self.advertised_address) is not None,
            "a host and a port, such as example.org:8081",
        )
        check(
            "workers",
            self.workers == 1 or sys.platform == "linux",
            "1: only Linux distributes the connections of a port among processes",
        )
        self._check_tls()
        if not self.insecure_listen:
            self._check_listening("host", self.host)
            if self.admin_port is not None:
                self._check_listening("admin_host", self.admin_address)
            if self.metrics_port is not None:
                self._check_listening("metrics_host", self.metrics_host)
            if self.console_port is not None:
                self._check_listening("console_host", self.console_host)
        check_settings(self, _BOUNDS, InvalidArgumentError)

    @property
    def admin_address(self) -> str:
        """The address for `admin_port`."""
        return self.host if self.admin_host is None else self.admin_host

    def _check_tls(self) -> None:
        needs = {
            "tls_cert": "tls_key",
            "tls_key": "tls_cert",
            "tls_ca": "tls_cert",
            "tls_port": "tls_cert",
        }
        for given, other in needs.items():
            if getattr(self, given) is not None and getattr(self, other) is None:
                raise InvalidArgumentError(other, f"is missing, but {given} is set")
        if self.tls_port is not None and self.advertised_address is not None:
            raise InvalidArgumentError(
                "tls_port",
                "cannot be set beside advertised_address: all clients of RocketMQ would be told "
                "one port. Without it each of them is told the address that it came by",
            )

    def _check_listening(self, field: str, host: str) -> None:
        """Raises InvalidArgumentError for an address that others can reach without
        authentication."""
        is_plain = self.tls_cert is None or (field == "host" and self.tls_port is not None)
        if _is_loopback(host) or (self.access and not is_plain):
            return
        if self.tls_port is not None and self.access:
            raise InvalidArgumentError(
                field,
                f"{host} can be reached from other machines, and port {self.port} takes no TLS as "
                "long as tls_port is set. If something else protects the port, --insecure-listen "
                "allows it",
            )
        raise InvalidArgumentError(
            field,
            f"{host} can be reached from other machines, which requires tls_cert, tls_key "
            "and access=true (see docs/security.md). If something else protects the port, "
            "--insecure-listen allows it",
        )

    @property
    def ingest_directory(self) -> Path:
        """The only directory from which IngestFiles accepts files."""
        return Path(self.data_dir, _INGEST).absolute()

    def store_config(self, port: int) -> StoreConfig:
        """The store's settings for a server that listens on `port`."""
        values: dict[str, Any] = {"root": self.data_dir, **self.store}
        values.setdefault("store_host", (_advertised(self.host), port))
        values.setdefault("rocksdb_statistics", self.metrics_port is not None)
        with in_table("store"):
            return StoreConfig(**values)


@contextmanager
def in_table(table: str) -> Iterator[None]:
    """Add the table's name to the name of a rejected setting."""
    try:
        yield
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{table}.{error.field}", error.reason) from error


_BOUNDS = bounds_of(ServerConfig)


def _is_loopback(host: str) -> bool:
    """Whether only this machine can reach it; any name but localhost may resolve to anything."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_port(value: object) -> bool:
    """Whether it is a port, or none."""
    return value is None or (type(value) is int and 0 <= value <= 65_535)


def _advertised(host: str) -> str:
    """The store host of records: always an address, never a wildcard."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "127.0.0.1"
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "::1"
    return str(address)
