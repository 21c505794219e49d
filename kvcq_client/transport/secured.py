"""TLS certificate files, and the headers of signed calls.

| header           | value                                                                    |
|------------------|--------------------------------------------------------------------------|
| `x-mq-date-time` | the time in UTC, `20240131T235959Z`                                      |
| `authorization`  | `MQv2-HMAC-SHA1 Credential=KEY, SignedHeaders=x-mq-date-time, Signature=…` |

The signature is the HMAC-SHA1 of the first header's value under the secret, in hex: the scheme of
RocketMQ 5's clients. It does not cover request and response; TLS does.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

import grpc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

DATE_TIME = "x-mq-date-time"
AUTHORIZATION = "authorization"
ALGORITHM = "MQv2-HMAC-SHA1"
#: Characters that can stand between the separators of the header.
ACCESS_KEY_FORM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")


@dataclass(frozen=True, kw_only=True)
class TLS:
    """Encrypt the connection and verify the server. Files are PEM, and reread when they change.

    `ca`: the authority that signed the server's certificate; None for the system's authorities.
    `cert` and `key`: of this client, for a server that asks for a client certificate.
    `server_name`: the name in the server's certificate if it differs from the target's host. Raises
    ValueError.
    """

    ca: str | Path | None = None
    cert: str | Path | None = None
    key: str | Path | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ValueError("tls: cert and key belong together; give both or neither")

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are given."""
        return tuple(Path(each) for each in (self.ca, self.cert, self.key) if each is not None)

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """gRPC credentials from the current files. Raises OSError."""
        return grpc.ssl_channel_credentials(_read(self.ca), _read(self.key), _read(self.cert))

    def check_files(self) -> None:
        """Raise OSError if a file is missing or truncated, or the key does not match the
        certificate. gRPC would report an unavailable server instead."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.set_ciphers("DEFAULT@SECLEVEL=0")  # gRPC decides how strong keys must be
        if self.ca is not None:
            context.load_verify_locations(self.ca)
        if self.cert is not None:
            context.load_cert_chain(self.cert, self.key, password="")


@dataclass(frozen=True)
class Credentials:
    """A user's access key and secret, with which every call is signed. Raises ValueError."""

    access_key: str
    secret: str = field(repr=False)

    def __post_init__(self) -> None:
        if not (isinstance(self.access_key, str) and ACCESS_KEY_FORM.fullmatch(self.access_key)):
            raise ValueError(
                f"access_key: {self.access_key!r} is not 1 to 128 letters, digits, or . _ @ -"
            )
        if not (isinstance(self.secret, str) and self.secret):
            raise ValueError("secret: is empty")


def signature_of(secret: str, date_time: str) -> str:
    """The signature of the date, in lower-case hex."""
    return hmac.new(secret.encode(), date_time.encode(), hashlib.sha1).hexdigest()


def stamps_of(files: Iterable[Path]) -> tuple[object, ...]:
    """A value that changes when one of the files is changed, replaced, created or removed."""
    stamps: list[object] = []
    for file in files:
        try:
            found = file.stat()
        except OSError as error:
            stamps.append(error.errno)
        else:
            stamps.append((found.st_ino, found.st_size, found.st_mtime_ns))
    return tuple(stamps)


class Signer:
    """Makes the headers of signed calls. Owned by one event loop."""

    def __init__(self, credentials: Credentials, now_s: Callable[[], float] = time) -> None:
        self._credentials = credentials
        self._now_s = now_s
        self._second = -1
        self._headers: tuple[tuple[str, str], ...] = ()

    def headers(self) -> tuple[tuple[str, str], ...]:
        """The headers for a call now, computed once per second."""
        second = int(self._now_s())
        if second != self._second:
            date_time = datetime.fromtimestamp(second, UTC).strftime("%Y%m%dT%H%M%SZ")
            signature = signature_of(self._credentials.secret, date_time)
            self._headers = (
                (DATE_TIME, date_time),
                (
                    AUTHORIZATION,
                    f"{ALGORITHM} Credential={self._credentials.access_key}, "
                    f"SignedHeaders={DATE_TIME}, Signature={signature}",
                ),
            )
            self._second = second
        return self._headers


def _read(file: str | Path | None) -> bytes | None:
    return None if file is None else Path(file).read_bytes()
